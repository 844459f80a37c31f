"""Rolled models as Models: modes, state, dropout, hidden states, caches, text."""

import jax
import numpy as np
import pytest
from torch import nn

import anyjax
from anyjax.errors import StateDropped, WrongArguments
from anyjax.transforms import explain, roll, unroll
from tests.models import tiny
from tests.tolerance import assert_close

IDS = np.arange(16, dtype=np.int32).reshape(2, 8)


@pytest.fixture(scope="module")
def llama():
    module = tiny.llama(num_hidden_layers=4, attention_dropout=0.3, eos_token_id=None)
    return anyjax.from_torch(module)


def test_hidden_states_and_caches(llama):
    """What every layer gives comes out by layer."""
    rolled = roll(llama, IDS)
    options = {"output_hidden_states": True, "use_cache": True}
    ours, theirs = rolled(IDS, **options), llama(IDS, **options)
    assert len(ours.hidden_states) == 5 and len(ours.to_tuple()[1].layers) == 4
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert_close(a, b, reduction=64)
    assert explain(rolled, IDS, **options).loops[0].rounds == 4


def test_dropout(llama):
    """The same draws as layer by layer."""
    rolled, plain = roll(llama, IDS).train(), llama.train()
    ours = rolled(IDS, rng=jax.random.key(1)).logits
    assert_close(ours, plain(IDS, rng=jax.random.key(1)).logits, reduction=64)
    assert abs(ours - rolled(IDS, rng=jax.random.key(2)).logits).max() > 0.01


def test_text(llama):
    """Token for token, with a cache that is filled in a loop over layers."""
    ours = anyjax.generate(roll(llama, IDS), IDS, max_new_tokens=6)
    assert (ours == anyjax.generate(llama, IDS, max_new_tokens=6)).all()


def test_back(llama):
    """Layers under their own names again, in torch as well."""
    rolled = roll(llama, IDS)
    back = unroll(rolled)
    assert back.source == llama.source and {*back.params} == {*llama.params}
    assert all((back.params[k] == x).all() for k, x in llama.params.items())
    doubled = rolled.with_params({k: 2 * x for k, x in rolled.params.items()})
    assert (unroll(doubled).params["model.norm.weight"] == 2).all()


def test_written_state_comes_back_in_stacks():
    """BatchNorm's statistics."""
    block = lambda: nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
    model = anyjax.from_torch(nn.Sequential(*(block() for _ in range(3))).train())
    x = np.random.default_rng(0).standard_normal((2, 4, 6, 6), np.float32)
    rolled = roll(model, x)
    assert rolled.state["*.1.running_mean"].shape == (3, 4)
    out, state = rolled.apply(rolled.params, x, mutable=True)
    expected, theirs = model.apply(model.params, x, mutable=True)
    assert_close(out, expected, reduction=256)
    for i in range(3):
        assert_close(state["*.1.running_var"][i], theirs[f"{i}.1.running_var"], reduction=256)
    with pytest.warns(StateDropped):
        rolled(x)


def test_quantized_layers(llama):
    """Stacks of packed arrays."""
    packed = anyjax.transforms.quantize(llama, "int8")
    rolled = roll(packed, IDS)
    assert rolled.state["model.layers.*.mlp.up_proj.weight.int8"].shape == (4, 32, 48)
    assert_close(rolled(IDS).logits, packed(IDS).logits, reduction=64)


def test_vmap_and_jit(llama):
    """Rows of a batch one by one."""
    rolled = roll(llama, IDS)
    one = lambda ids: rolled.apply(rolled.params, ids[None]).logits[0]
    assert_close(jax.jit(jax.vmap(one))(IDS), llama(IDS).logits, reduction=64)


def test_a_kind_of_call_is_traced_once(llama):
    """Gradients and other programs of it find what was found; other shapes are looked at."""
    seen = []
    handle = llama.source.code.model.register_forward_hook(lambda *_: seen.append(1))
    rolled = roll(llama, IDS)
    traces = len(seen)
    loss = lambda params, ids: rolled.apply(params, ids).logits.mean()
    jax.jit(loss)(rolled.params, IDS)
    jax.grad(loss)(rolled.params, IDS)
    assert len(seen) == traces
    jax.jit(loss)(rolled.params, IDS[:, :5])
    handle.remove()
    assert len(seen) == traces + 1
    with jax.default_matmul_precision("highest"):
        program = jax.make_jaxpr(loss)(rolled.params, IDS)
    assert "HIGHEST" in str(program)


def test_layers_are_quantized_before_they_are_rolled(llama):
    with pytest.raises(WrongArguments, match="rolled"):
        anyjax.transforms.quantize(roll(llama, IDS), "int8")
