"""Kernels, traffic and collectives, read from a compiled program's text."""

import jax
import jax.numpy as jnp
import pytest

from anyjax.parallel.collectives import collectives
from anyjax.parallel.estimation.kernels import Text

TPU = """HloModule jit_f, is_scheduled=true

FileNames
1 "/models/model.py"
2 "/models/env/lib/python3.11/site-packages/jax/_src/api.py"

FileLocations
1 {file_name_id=1 function_name_id=1 line=7 end_line=7 column=1 end_column=9}
2 {file_name_id=2 function_name_id=2 line=9 end_line=9 column=1 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}

%fused (p: bf16[7,256,256], i: s32[]) -> bf16[256,256] {
  %p = bf16[7,256,256]{2,1,0} parameter(0)
  %i = s32[] parameter(1)
  ROOT %cut = bf16[1,256,256]{2,1,0} dynamic-slice(%p, %i), dynamic_slice_sizes={1,256,256}
}

%body (t: (s32[], bf16[7,256,256])) -> (s32[], bf16[7,256,256]) {
  %t = (s32[], bf16[7,256,256]{2,1,0}) parameter(0)
  %n = s32[] get-tuple-element(%t), index=0
  %w = bf16[7,256,256]{2,1,0} get-tuple-element(%t), index=1
  %row = bf16[256,256]{1,0} fusion(%w, %n), kind=kLoop, calls=%fused, META
  %sum = bf16[256,256]{1,0} all-reduce(%row), replica_groups={{0,1}}, to_apply=%add
  ROOT %out = (s32[], bf16[7,256,256]{2,1,0}) tuple(%n, %w)
}

%cond (t2: (s32[], bf16[7,256,256])) -> pred[] {
  %t2 = (s32[], bf16[7,256,256]{2,1,0}) parameter(0)
  %n2 = s32[] get-tuple-element(%t2), index=0
  %end = s32[] constant(7)
  ROOT %lt = pred[] compare(%n2, %end), direction=LT
}

ENTRY %main (a: (s32[], bf16[7,256,256])) -> (s32[], bf16[7,256,256]) {
  %a = (s32[], bf16[7,256,256]{2,1,0}) parameter(0)
  %kernel = bf16[256,256]{1,0} custom-call(%a), custom_call_target="tpu_custom_call"
  ROOT %loop = (s32[], bf16[7,256,256]{2,1,0}) while(%a), condition=%cond, body=%body
}
"""
META = (
    'metadata={op_name="jit(f)/while/body/closed_call/model/layers.3/mul" stack_frame_id=2}, '
    'backend_config={"estimated_cycles":"100"}'
)
MATRIX = 256 * 256 * 2


def test_a_loop_counts_as_often_as_it_runs():
    text = Text.of(TPU.replace("META", META))
    row, *others = text.kernels()
    assert row.name == "model/layers.*/mul" and row.where == "model.py:7"
    assert (row.calls, row.cycles) == (7, 700)
    assert row.bytes == 7 * (2 * MATRIX + 4)  # a slice is read, not the stack
    assert {k.kind for k in others} == {"all-reduce", "tpu_custom_call"}
    assert text.collectives() == {"all-reduce": (7, 7 * MATRIX)}


def compiled(function, *args):
    return jax.jit(function).lower(*args).compile().as_text()


def test_as_this_machine_compiles_it():
    x, stack = jnp.ones((64, 64)), jnp.ones((5, 64, 64))
    looped = Text.of(
        compiled(lambda x, w: jax.lax.scan(lambda c, w: (jnp.sin(c) @ w, None), x, w)[0], x, stack)
    )
    assert any(k.calls == 5 for k in looped.kernels())
    assert "while" not in {k.kind for k in looped.kernels()}


@pytest.mark.skipif(jax.device_count() < 2, reason="needs two devices")
def test_collectives_are_those_of_the_text():
    mesh = jax.make_mesh((2,), ("x",), devices=jax.devices()[:2])
    rows = jax.NamedSharding(mesh, jax.P("x"))
    x = jax.device_put(jnp.ones((8, 8)), rows)
    text = compiled(lambda x: x.sum(0), x)
    assert Text.of(text).collectives() == collectives(text) != {}


IN_PLACE = """HloModule jit_f

%cut (c: bf16[2,256,256]) -> bf16[256,256] {
  %c = bf16[2,256,256]{2,1,0} parameter(0)
  ROOT %half = bf16[1,256,256]{2,1,0} slice(%c), slice={[0:1], [0:256], [0:256]}
}

%into (p: bf16[2,256,256], i: s32[4,1], u: bf16[4,256]) -> bf16[2,256,256] {
  %p = BASE
  %i = s32[4,1]{1,0} parameter(1)
  %u = bf16[4,256]{1,0} parameter(2)
  ROOT %put = bf16[2,256,256]{2,1,0} scatter(%p, %i, %u), to_apply=%keep
}

%reads (q: bf16[2,256,256]) -> bf16[256,256] {
  %q = bf16[2,256,256]{2,1,0} parameter(0)
  %inner = bf16[256,256]{1,0} fusion(%q), kind=kLoop, calls=%cut
  ROOT %negated = bf16[256,256]{1,0} negate(%inner)
}

ENTRY %main (a: bf16[2,256,256], b: s32[4,1], d: bf16[4,256]) -> bf16[256,256] {
  %a = bf16[2,256,256]{2,1,0} parameter(0)
  %b = s32[4,1]{1,0} parameter(1)
  %d = bf16[4,256]{1,0} parameter(2)
  %new = bf16[2,256,256]{2,1,0} fusion(%a, %b, %d), kind=kCustom, calls=%into
  ROOT %out = bf16[256,256]{1,0} fusion(%new), kind=kLoop, calls=%reads
}
"""
ROWS = 4 * 256 * 2


@pytest.mark.parametrize(
    "base,written",
    [
        ("bf16[2,256,256]{2,1,0} parameter(0)", ROWS),
        ("bf16[2,256,256]{2,1,0} broadcast(%zero), dimensions={}", 2 * MATRIX),
    ],
)
def test_what_is_scattered_in_place_is_not_all_of_an_array(base, written):
    """And a fusion inside of another one reads the part that it cuts."""
    (both,) = Text.of(IN_PLACE.replace("BASE", base)).kernels()  # of no names: together
    assert both.bytes == written + ROWS + 4 * 4 + 2 * MATRIX
