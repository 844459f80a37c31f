"""Rolled models of many kinds, beside their originals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers as tf
from jax.sharding import PartitionSpec as P

import anyjax
from anyjax.errors import NotRolled, WrongArguments
from anyjax.parallel import shard
from anyjax.transforms import explain, roll, unroll
from tests.parallel.architectures import CASES
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=10)

DEPTHS = ("num_hidden_layers", "n_layer", "encoder_layers", "decoder_layers", "num_layers")
DEEP = dict.fromkeys(DEPTHS, 4) | {"depths": [4, 4]}
# matrix products outside of loops: embeddings and heads, first layers with a table of positions
# (T5), stages' first blocks
ALONE = {"t5": 23, "swin": 3, "resnet": 10, "whisper": 3, "vit": 2, "bert": 2, "roberta": 2}


def deep(name):
    """(Model with 4 layers, inputs)."""
    cls, sizes, inputs = CASES[name]
    kind = getattr(tf, cls)
    torch.manual_seed(0)
    sizes = {k: DEEP.get(k, v) for k, v in sizes.items()}
    return anyjax.from_torch(kind(kind.config_class(**sizes)).eval()), inputs


@pytest.mark.parametrize("name", CASES)
def test_architectures(name):
    """Outputs and gradients of the original; all layers in loops."""
    model, inputs = deep(name)
    rolled = roll(model, **inputs)
    told = explain(model, **inputs)
    assert told.products - told.inside <= ALONE.get(name, 1), str(told)
    for a, b in zip(*(jax.tree.leaves(m(**inputs)) for m in (rolled, model)), strict=True):
        assert_close(a, b, reduction=512)

    def gradients(model):
        loss = lambda params: jnp.mean(model.apply(params, **inputs).logits ** 2)
        return jax.jit(jax.grad(loss))(model.params)

    theirs, ours = gradients(model), gradients(rolled)
    top = max(float(abs(x).max()) for x in theirs.values())  # a key's bias has none but rounding
    for key, grad in unroll(rolled.with_params(ours)).params.items():
        scale = float(abs(theirs[key]).max()) + 1e-3 * top
        assert_close(grad, theirs[key], reduction=512, scale=scale)


@pytest.mark.parametrize("plan", ["tp", "fsdp"])
def test_on_a_mesh(plan):
    """A stack is divided as its rows are, not by layers."""
    model, inputs = deep("llama")
    mesh = jax.make_mesh((8,), ("model",))
    there = shard(roll(model, **inputs), mesh, plan, **inputs)
    plain = shard(model, mesh, plan, **inputs)
    assert_close(there(**inputs).logits, model(**inputs).logits, reduction=512)
    for name in ("self_attn.q_proj.weight", "mlp.down_proj.weight"):
        row = plain.params[f"model.layers.0.{name}"].sharding.spec
        assert there.params[f"model.layers.*.{name}"].sharding.spec == P(None, *row)
    rolled = roll(plain, **inputs)
    assert rolled.params["model.layers.*.mlp.up_proj.weight"].sharding.spec[0] is None
    assert_close(rolled(**inputs).logits, model(**inputs).logits, reduction=512)


def test_remat():
    """The same gradients, layers computed again."""
    model, inputs = deep("llama")
    plain, again = roll(model, **inputs), roll(model, **inputs, remat=True)
    loss = lambda model: lambda params: model.apply(params, **inputs).logits.std()
    ours, theirs = (jax.jit(jax.grad(loss(m)))(m.params) for m in (again, plain))
    assert "remat" in str(jax.make_jaxpr(loss(again))(again.params))
    for name, grad in ours.items():
        assert_close(grad, theirs[name], reduction=512)


def test_from_pretrained(tmp_path):
    """Loaded into stacks; no example is needed where the model says what it takes."""
    folder = "examples/tiny-llama"
    model, rolled = anyjax.from_pretrained(folder), anyjax.from_pretrained(folder, roll=True)
    assert len(rolled.params) < len(model.params)
    ids = np.arange(12, dtype=np.int32).reshape(1, 12)
    assert_close(rolled(ids).logits, model(ids).logits, reduction=512)
    rolled.save_pretrained(tmp_path)
    again = anyjax.from_pretrained(tmp_path)
    assert all((again.params[k] == x).all() for k, x in model.params.items())


def test_tensorflow():
    """Whichever framework made the program."""
    keras = pytest.importorskip("keras")
    layers = [keras.layers.Dense(8, activation="relu") for _ in range(4)]
    net = keras.Sequential([keras.Input((8,)), *layers, keras.layers.Dense(2)])
    x = np.ones((3, 8), np.float32)
    model = anyjax.convert(net, x)
    rolled = roll(model, x)
    assert any(k.endswith("/kernel") or x.ndim == 3 for k, x in rolled.params.items())
    assert_close(rolled(x), model(x), reduction=64)
    assert explain(model, x).loops[0].rounds == 4


def test_mistakes():
    """Rolled twice, not rolled, no example, nothing to roll."""
    x = np.ones((2, 8), np.float32)
    model = anyjax.from_torch(torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(3))))
    with pytest.raises(WrongArguments, match="no call"):
        roll(model)
    rolled = roll(model, x)
    with pytest.raises(WrongArguments, match="rolled already"):
        roll(rolled, x)
    with pytest.raises(WrongArguments, match="not rolled"):
        unroll(model)
    alone = anyjax.from_torch(torch.nn.Linear(8, 8))
    with pytest.warns(NotRolled, match="no layers of Linear repeat"):
        assert roll(alone, x) is alone


@pytest.mark.parametrize("frozen", [slice(0, 2), slice(3, 4), slice(0, 4, 2), slice(0, 4)])
def test_frozen_layers(frozen):
    """What is trained and what is not are stacks of their own."""
    torch.manual_seed(0)
    layers = [torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Tanh()) for _ in range(4)]
    for layer in layers[frozen]:
        layer.requires_grad_(False)
    model = anyjax.from_torch(torch.nn.Sequential(*layers))
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 6)
    try:
        rolled = roll(model, x)
    except NotRolled:
        assert frozen.step == 2  # no two neighbours are alike
        return
    assert_close(rolled(x), model(x), reduction=16)
    by = jax.grad(lambda p: (rolled.apply(p, x) ** 2).sum())(rolled.params)
    want = jax.grad(lambda p: (model.apply(p, x) ** 2).sum())(model.params)
    got = unroll(rolled.with_params(by)).params
    assert got.keys() == want.keys()
    for name in want:
        assert_close(got[name], want[name], reduction=64)


def test_nothing_that_could_repeat_needs_no_example():
    model = anyjax.from_torch(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Linear(5, 2)))
    with pytest.warns(NotRolled, match="no layers of Sequential repeat"):
        assert roll(model) is model
    two = anyjax.from_torch(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)))
    with pytest.raises(WrongArguments, match=r"(?s)no call to trace.*which layers repeat.*roll"):
        roll(two)
