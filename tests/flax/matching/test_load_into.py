"""Hand-written flax modules get torch's weights, and compute what torch does."""

from __future__ import annotations

import itertools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

import anyjax
from anyjax.errors import BadCheckpoint, ForwardFailed, WrongArguments, WrongWeights
from anyjax.flax import load_into
from tests.flax.torch_side import TorchTied, assert_same_outputs, lively, normal, torch_mlp


class Mlp(nnx.Module):
    def __init__(self, rngs, *sizes):
        pairs = itertools.pairwise(sizes)
        self.layers = nnx.List([nnx.Linear(a, b, rngs=rngs) for a, b in pairs])

    def __call__(self, x):
        for layer in self.layers[:-1]:
            x = nnx.relu(layer(x))
        return self.layers[-1](x)


@pytest.mark.parametrize("sizes", [(3, 8, 5), (8, 8, 8, 8)], ids=["unlike", "square"])
@pytest.mark.parametrize("source", ["module", "state dict", "numpy", "model"])
def test_mlp(sizes, source):
    theirs, x = torch_mlp(*sizes), normal(4, sizes[0])
    given = {
        "module": lambda: theirs,
        "state dict": theirs.state_dict,
        "numpy": lambda: {k: v.numpy() for k, v in theirs.state_dict().items()},
        "model": lambda: anyjax.from_torch(theirs),
    }[source]()
    ours = Mlp(nnx.Rngs(0), *sizes)
    filled, report = load_into(ours, given)
    assert filled is ours
    assert_same_outputs(ours(x), theirs, x)
    assert report["layers/0/kernel"].torch == "0.weight"
    assert {m.layout for m in report} == {"transposed", "as it is"}


class LinenMlp(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Dense(8)(x))
        x = nn.relu(nn.Dense(8)(x))
        return nn.Dense(8)(x)


@pytest.mark.parametrize("how", ["variables", "example", "both"])
def test_linen_mlp(how):
    theirs, x, module = torch_mlp(8, 8, 8, 8), normal(4, 8), LinenMlp()
    given = {}
    if how != "variables":
        given["example"] = (x,)
    if how != "example":
        given["variables"] = module.init(jax.random.key(0), x)
    variables, report = load_into(module, theirs, **given)
    assert_same_outputs(module.apply(variables, x), theirs, x)
    assert report["Dense_1/kernel"].torch == "2.weight"
    assert report["Dense_1/kernel"].how == "order"
    assert ("outputs differ by" in report.checked) == (how != "variables")


class Tied(nnx.Module):
    def __init__(self, rngs, epsilon=1e-5):
        self.embed = nnx.Embed(11, 8, rngs=rngs)
        self.norm = nnx.LayerNorm(8, epsilon=epsilon, rngs=rngs)

    def __call__(self, ids):
        return self.embed.attend(self.norm(self.embed(ids)))


@pytest.mark.parametrize("source", ["module", "state dict"])
def test_tied_head(source):
    theirs, ours, ids = lively(TorchTied()), Tied(nnx.Rngs(0)), np.array([[1, 2, 10]])
    given = theirs if source == "module" else theirs.state_dict()
    _, report = load_into(ours, given, example=(ids,))
    assert_same_outputs(ours(ids), theirs, ids)
    assert report.left_out == (("lm_head.weight", "tied to wte.weight"),)


class Plain(nnx.Module):
    """Layers of plain parameters, in torch's order of axes or in the other."""

    def __init__(self, turned):
        self.w, self.b = nnx.Param(jnp.zeros((8, 8))), nnx.Param(jnp.zeros(8))
        self.turned = turned

    def __call__(self, x):
        return x @ (self.w[...].T if self.turned else self.w[...]) + self.b[...]


@pytest.mark.parametrize("turned", [False, True])
def test_square_parameters_are_turned_as_the_outputs_say(turned):
    theirs, x = lively(torch.nn.Linear(8, 8)), normal(3, 8)
    ours = Plain(turned)
    _, report = load_into(ours, theirs)
    assert_same_outputs(ours(x), theirs, x)
    assert (report["w"].layout, report["w"].how) == (
        "as it is" if turned else "transposed",
        "agreement",
    )
    with pytest.raises(WrongWeights, match=r"\(as it is\) \|  ?\(transposed\)|arrays alone"):
        load_into(Plain(turned), theirs.state_dict())


class Sum(nnx.Module):
    def __init__(self, rngs):
        self.left, self.right = nnx.Linear(4, 4, rngs=rngs), nnx.Linear(4, 4, rngs=rngs)

    def __call__(self, x):
        return self.left(x) + self.right(x)


class TorchSum(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.one(x) + self.two(x)


def test_what_no_output_tells_apart_is_ambiguous():
    theirs, x = lively(TorchSum()), normal(2, 4)
    with pytest.raises(WrongWeights, match=r"(?s)2 layers.*left: one \| two.*right: one \| two"):
        load_into(Sum(nnx.Rngs(0)), theirs, example=(x,))
    ours, report = load_into(Sum(nnx.Rngs(0)), theirs, match={"left": "two"}, example=(x,))
    assert_same_outputs(ours(x), theirs, x)
    assert (report["left/bias"].how, report["right/bias"].how) == ("given", "shape")


def test_all_that_is_missing_or_left_over_is_told_at_once():
    ours = Mlp(nnx.Rngs(0), 3, 8, 5, 7)
    before = nnx.state(ours)
    with pytest.raises(WrongWeights) as caught:
        load_into(ours, {"a.weight": normal(8, 3), "a.bias": normal(8), "x.gamma": normal(9)})
    text = str(caught.value)
    assert "4 variables are not filled, 1 torch tensors are not used" in text
    for name in ("layers/1/kernel (8, 5)", "layers/2/bias (7,)", "x.gamma (9,)"):
        assert name in text
    jax.tree.map(np.testing.assert_array_equal, before, nnx.state(ours))
    values = {"layers/1": None, "layers/2/*": None}
    stored = {"a.weight": normal(8, 3), "a.bias": normal(8), "x.gamma": normal(9)}
    _, report = load_into(ours, stored, match=values, ignore=["x.*"])
    assert len(report.stays) == 4
    assert report.left_out == (("x.gamma", "ignored, as asked"),)


def test_the_first_submodule_that_differs_is_named_and_nothing_is_changed():
    theirs, ids = lively(TorchTied()), np.array([[1, 2, 10]])
    ours = Tied(nnx.Rngs(0), epsilon=0.1)
    before = nnx.state(ours)
    with pytest.raises(
        WrongWeights, match=r"(?s)norm \(torch: ln_f\).*inputs agree.*epsilon 0.1, .* 1e-05"
    ):
        load_into(ours, theirs, example=(ids,))
    jax.tree.map(np.testing.assert_array_equal, before, nnx.state(ours))
    assert not theirs.training


class NoRelu(nnx.Module):
    def __init__(self, rngs):
        self.a, self.b = nnx.Linear(3, 8, rngs=rngs), nnx.Linear(8, 2, rngs=rngs)

    def __call__(self, x):
        return self.b(self.a(x))


def test_code_between_submodules_that_differs_is_told():
    with pytest.raises(WrongWeights, match=r"of b \(torch: 2\) differ by .*; so do its inputs"):
        load_into(NoRelu(nnx.Rngs(0)), torch_mlp(3, 8, 2), example=(normal(4, 3),))


def test_arrays_get_the_dtype_of_the_variables():
    theirs = lively(torch.nn.Linear(3, 2)).to(torch.bfloat16)
    ours = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    _, report = load_into(ours, theirs)
    assert report["kernel"].cast == "bfloat16 -> float32"
    assert "bfloat16 -> float32" in str(report)
    np.testing.assert_array_equal(ours.kernel[...].T, theirs.weight.detach().float().numpy())
    half = nnx.Linear(3, 2, param_dtype=jnp.bfloat16, rngs=nnx.Rngs(0))
    load_into(half, theirs.float(), example=(normal(4, 3),))
    assert half.kernel.dtype == jnp.bfloat16


def test_an_abstract_module_and_a_mesh():
    theirs = lively(torch.nn.Linear(8, 4))
    ours = nnx.eval_shape(lambda: nnx.Linear(8, 4, rngs=nnx.Rngs(0)))
    load_into(ours, theirs, example=(normal(2, 8),))
    spread = nnx.Linear(8, 4, rngs=nnx.Rngs(0))
    mesh = jax.make_mesh((4,), ("x",))
    rows = jax.NamedSharding(mesh, jax.P("x"))
    spread.kernel.set_value(jax.device_put(spread.kernel[...], rows))
    load_into(spread, theirs)
    assert spread.kernel.get_value().sharding == rows
    np.testing.assert_array_equal(spread.kernel[...], ours.kernel[...])


def test_given_arrays_and_bad_decisions():
    theirs, ours = torch_mlp(3, 8, 8), Mlp(nnx.Rngs(0), 3, 8, 8)
    kernel = normal(3, 8)
    stored = {k: v for k, v in theirs.state_dict().items() if k != "0.weight"}
    match = {"layers/0/kernel": kernel, "layers/0/bias": np.zeros(8, np.float32)}
    load_into(ours, stored, match=match, ignore="0.bias")
    np.testing.assert_array_equal(ours.layers[0].kernel[...], kernel)
    for wrong in ({"nope": "0"}, {"layers/0": "nope"}, {"layers/0": "2"}, {"layers/0": ("0", "x")}):
        with pytest.raises(WrongArguments, match="match"):
            load_into(ours, theirs, match=wrong)
    with pytest.raises(WrongArguments, match="shape"):
        load_into(ours, theirs, match={"layers/0/kernel": normal(8, 3)})


def test_arguments_that_are_wrong(tmp_path):
    theirs, linen = torch_mlp(3, 8), nn.Dense(8)
    linear = nnx.Linear(3, 8, rngs=nnx.Rngs(0))
    for args, given in [
        ((linear, 3), {}),
        ((linear, {"weight": "text"}), {}),
        ((theirs, theirs), {}),
        ((linen, theirs), {}),
        ((linear, theirs), {"variables": {}}),
        ((linear, theirs), {"example": {"x": normal(2, 3)}}),
    ]:
        with pytest.raises(WrongArguments):
            load_into(*args, **given)
    with pytest.raises(ForwardFailed, match="torch_example"):
        load_into(linear, theirs, example=(normal(2, 4),))
    for path in (tmp_path, tmp_path / "none.safetensors"):
        with pytest.raises(BadCheckpoint):
            load_into(linear, path)


class Feed(nnx.Module):
    def __init__(self, rngs):
        self.up = nnx.Linear(8, 16, rngs=rngs)
        self.down = nnx.Linear(16, 8, rngs=rngs)
        self.out = nnx.Linear(8, 8, rngs=rngs)


def test_square_weights_lie_as_the_others_of_their_state_dict():
    """transformers' Conv1D keeps (inside, outside); its square weights look like Linear's."""
    rng = np.random.default_rng(0)
    sizes = {"up": (8, 16), "down": (16, 8), "out": (8, 8)}
    weights = {f"{k}.weight": rng.standard_normal(v, np.float32) for k, v in sizes.items()}
    weights |= {f"{k}.bias": np.zeros(v[1], np.float32) for k, v in sizes.items()}
    model, _ = anyjax.flax.load_into(Feed(nnx.Rngs(0)), weights)
    for name in sizes:
        np.testing.assert_array_equal(getattr(model, name).kernel[...], weights[f"{name}.weight"])
    turned = {k: x.T for k, x in weights.items()}
    model, _ = anyjax.flax.load_into(Feed(nnx.Rngs(0)), turned)
    for name in sizes:
        np.testing.assert_array_equal(getattr(model, name).kernel[...], weights[f"{name}.weight"])
