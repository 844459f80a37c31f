"""Quantized matrices on a mesh: parts lie as the matrix would, numbers are those of one device."""

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import anyjax
from anyjax.errors import WrongArguments
from anyjax.parallel import explain, shard
from tests.hf.loading.module.quantized import test_layouts as layouts
from tests.parallel.architectures import build
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=9)

SCHEMES = "int8", "fp8", "int4", "nf4"
TARGETS = "proj|c_fc|c_attn|c_proj"


def mesh(**axes):
    return jax.make_mesh(tuple(axes.values()), tuple(axes))


def assert_same_outputs(there, model, inputs):
    assert_close(there(**inputs).logits, model(**inputs).logits, reduction=512)
    ids = inputs["input_ids"][:1, :5]
    want = anyjax.generate(model, ids, max_new_tokens=4)
    np.testing.assert_array_equal(anyjax.generate(there, ids, max_new_tokens=4), want)


def divided(x):
    return x.size // x.addressable_shards[0].data.size


@pytest.mark.parametrize("plan", ["tp", "fsdp"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_schemes(scheme, plan):
    """Columns beside rows as of floats: no more is communicated."""
    module, inputs = build("llama")
    model = anyjax.from_torch(module)
    small = anyjax.transforms.quantize(model, scheme, targets=TARGETS, block=8)
    there = shard(small, mesh(model=8) if plan == "tp" else mesh(data=8), plan)
    parts = {k: x for k, x in there.state.items() if "proj" in k}
    assert len(parts) == 2 * 2 * 7 and {divided(x) for x in parts.values()} == {8}
    if plan == "tp":
        name = "model.layers.0.self_attn.q_proj.weight"
        assert parts[f"{name}.{scheme}"].sharding.spec == P(None, "model")
        assert parts[f"{name}.scale"].sharding.spec == P(None, "model")
        told = explain(small, mesh(model=8), "tp", **inputs, use_cache=False)
        assert {k: v.calls for k, v in told.traffic.items()} == {"all-reduce": 5}
    assert_same_outputs(there, small, inputs)


def test_derived_plans():
    """GPT-2's own numbers, transposed, by what its products feed."""
    module, inputs = build("gpt2")
    small = anyjax.transforms.quantize(anyjax.from_torch(module), "int8", targets=TARGETS, block=8)
    there = shard(small, mesh(model=8), "tp", **inputs)
    numbers = [x for k, x in there.state.items() if k.endswith((".int8", ".scale"))]
    assert {divided(x) for x in numbers} == {8}
    assert_same_outputs(there, small, inputs)


TOOLS = {
    "gptq": (layouts.gptq, layouts.GPTQ),
    "awq": (layouts.awq, {"quant_method": "awq", "bits": 4, "group_size": 16}),
}


@pytest.mark.parametrize("plan", ["tp", "fsdp"])
@pytest.mark.parametrize("tool", TOOLS)
def test_checkpoints(tool, plan, tmp_path):
    """Each device has its part of numbers, scales and zeros."""
    layouts.write(tmp_path, *TOOLS[tool])
    model = anyjax.from_pretrained(tmp_path)
    axes = dict(model=2) if plan == "tp" else dict(data=2)
    there = anyjax.from_pretrained(tmp_path, mesh=mesh(**axes), plan=plan)
    parts = {k: x for k, x in there.state.items() if "proj" in k}
    assert len(parts) == (7 + 4) * 3 and {divided(x) for x in parts.values()} == {2}
    assert_same_outputs(there, model, {"input_ids": layouts.IDS})


def test_blocks_are_not_cut(tmp_path):
    small = anyjax.transforms.quantize(
        anyjax.from_torch(build("llama")[0]), "int4", targets=TARGETS
    )
    with pytest.raises(WrongArguments, match="128 numbers in blocks of 64 over 8"):
        shard(small, mesh(model=8), "tp")
    rows = {"proj": P("model")}
    there = shard(small, mesh(model=8), rows)
    assert {divided(x) for k, x in there.state.items() if "proj" in k} == {8}
    layouts.write(tmp_path, *TOOLS["gptq"])
    with pytest.raises(WrongArguments, match="in blocks of 16 over 8 devices"):
        anyjax.from_pretrained(tmp_path, mesh=mesh(model=8), plan={"o_proj": P(None, "model")})


def test_stacks_of_layers():
    module, inputs = build("llama")
    small = anyjax.transforms.quantize(anyjax.from_torch(module), "int8", targets=TARGETS, block=8)
    rolled = anyjax.transforms.roll(small, **inputs)
    there = shard(rolled, mesh(model=8), "tp")
    parts = [x for k, x in there.state.items() if "proj" in k]
    assert parts and {divided(x) for x in parts} == {8}
    assert_same_outputs(there, rolled, inputs)
