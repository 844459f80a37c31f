"""Model: static arguments by themselves, containers without registration, pytree, repr."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import StaticArgument, WrongArguments
from tests.tolerance import assert_close

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    loss: torch.Tensor | None = None
    name: str = ""


class Store:
    """A cache: arrays in layers, plus plain attributes."""

    def __init__(self):
        self.layers, self.length = [], 0

    def update(self, x):
        self.layers.append(x)
        self.length += 1
        return sum(self.layers)


class Net(torch.nn.Module):
    def forward(self, x, factor=2.0, mode="plain", flag=True, cache=None, extra=None):
        y = x * factor if flag else x
        if mode == "cached":
            return Output(cache.update(y), name="net"), cache
        return Output(y, name=mode)


def test_python_values_are_static_by_themselves():
    model = anyjax.from_torch(Net())
    assert_close(model(X, 3.0).logits, 3 * X)
    assert_close(model(X, flag=False, extra={"a": [1, None]}).logits, X)
    out = model(X, mode="other")
    assert (out.name, out.loss) == ("other", None)
    assert isinstance(out.logits, jax.Array)


def test_objects_pass_in_and_out_without_registration():
    model = anyjax.from_torch(Net())
    store = Store()
    out, store = model(X, mode="cached", cache=store)
    out, store = model(X, mode="cached", cache=store)
    assert isinstance(store, Store)
    assert store.length == 2
    assert_close(out.logits, 4 * X)
    assert [type(x) for x in store.layers] == [type(jnp.ones(1))] * 2
    assert isinstance(jax.jit(lambda s: s)(store), Store)


def test_an_argument_that_decides_shapes_becomes_static():
    def function(x, grid):
        return torch.cat([x] * int(grid[0]), 0) * grid[1]

    model = anyjax.from_torch(function)
    with pytest.warns(StaticArgument, match="grid"):
        out = model(X, np.array([3, 2]))
    assert_close(out, np.concatenate([X] * 3) * 2)
    assert_close(model(X, np.array([1, 5])), X * 5)


@pytest.mark.parametrize("kind", [np.array, jnp.array, torch.tensor])
def test_an_argument_that_is_closed_over_decides_shapes(kind):
    model = anyjax.from_torch(lambda x, grid: torch.cat([x] * int(grid.max()), 0).sum(0) * grid[1])
    grid = kind([3, 2])
    apply = lambda x: model.apply({}, x, grid)
    assert_close(jax.jit(apply)(X), 6 * X.sum(0))
    assert_close(jax.jit(jax.vmap(apply))(X[None]), 6 * X.sum(0)[None])
    assert_close(jax.jit(jax.grad(lambda x: apply(x).sum()))(X), np.full_like(X, 6))
    with pytest.raises(anyjax.errors.DataDependent, match="the values of grid"):
        jax.jit(model.apply)({}, X, jnp.array([3, 2]))
    with pytest.raises(anyjax.errors.DataDependent, match="the values of grid"):
        jax.jit(lambda x, grid: model(x, grid))(X, jnp.array([3, 2]))


def test_floats_that_decide_are_an_error():
    model = anyjax.from_torch(lambda x: x * float(x.sum()))
    with pytest.raises(anyjax.errors.DataDependent):
        model(X)


def test_one_compilation_for_one_kind_of_call():
    traces = []

    def function(x, scale=1.0):
        traces.append(scale)
        return x * scale

    model = anyjax.from_torch(function)
    for _ in range(3):
        model(X, scale=2.0)
        model(X + 1, scale=2.0)
    model(X, scale=3.0)
    assert traces == [2.0, 3.0]


def test_a_model_is_a_pytree():
    model = anyjax.from_torch(torch.nn.BatchNorm1d(3).eval())
    twice = jax.tree.map(lambda x: x * 2, model)
    assert isinstance(twice, anyjax.Model)
    assert_close(twice.params["weight"], 2 * model.params["weight"])
    loss = lambda m, x: m.apply(m.params, x, state=m.state).sum()
    grads = jax.grad(loss, allow_int=True)(model, X)
    assert_close(grads.params["bias"], np.full(3, 2.0))
    assert_close(jax.jit(loss)(model, X), loss(model, X), reduction=6)


def test_vmap_over_params():
    model = anyjax.from_torch(torch.nn.Linear(3, 2))
    stacked = jax.tree.map(lambda p: jnp.stack([p, 2 * p]), model.params)
    out = jax.vmap(model.apply, (0, None))(stacked, X)
    assert_close(out, jnp.stack([model(X), 2 * model(X)]), reduction=3)


def test_all_kinds_of_inputs():
    model = anyjax.from_torch(Net())
    for x in (X, jnp.asarray(X), torch.from_numpy(X), torch.from_numpy(X).requires_grad_()):
        assert_close(model(x).logits, 2 * X)


def test_repr_shows_what_is_inside():
    text = repr(
        anyjax.from_torch(
            torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).eval()
        )
    )
    assert "Sequential from torch, eval mode" in text
    assert "4 arrays, 24 values" in text
    assert "state   3 arrays, 9 values" in text
    assert "call    Sequential(input)" in text
    assert "weight [4, 3], bias [4]" in text


def test_repr_of_what_jax_puts_in_the_place_of_arrays():
    model = anyjax.from_torch(torch.nn.Linear(3, 4))
    text = repr(jax.tree.map(lambda x: x.sharding, model))
    assert "2 arrays, 0 values" in text and "bias SingleDeviceSharding" in text


def test_repr_is_never_wide():
    class Wide(torch.nn.Module):
        def forward(self, x: torch.Tensor, many: torch.Tensor | None = None, *others, **kwargs):
            return x

    assert "Wide(x, many=None, *others, **kwargs)" in repr(anyjax.from_torch(Wide()))
    long = ", ".join(f"argument_{i}=None" for i in range(40))
    made = {}
    exec(f"def forward(self, {long}): ...", made)
    text = repr(anyjax.from_torch(type("Long", (torch.nn.Module,), {"forward": made["forward"]})()))
    assert "argument_0=None" in text and "more)" in text
    assert max(map(len, text.splitlines())) < 130


def test_convert_picks_the_frontend():
    assert anyjax.convert(torch.nn.ReLU()).source.framework == "torch"
    with pytest.raises(anyjax.errors.Unsupported, match="no frontend takes a int"):
        anyjax.convert(3)


class Table:
    """Becomes an array, as tables and pictures do."""

    def __array__(self, dtype=None, copy=None):
        return X


OTHER_ARRAYS = {
    "a table": Table(),
    "a masked array": np.ma.masked_array(X, X > 2),
    "named fields": np.ones(2, [("a", "f4"), ("b", "f4")]),
}


@pytest.mark.parametrize("name", OTHER_ARRAYS)
def test_what_would_lose_something_as_an_array_is_refused(name):
    model = anyjax.from_torch(torch.nn.ReLU())
    with pytest.raises(WrongArguments, match="an argument is a"):
        model(OTHER_ARRAYS[name])
    with pytest.raises(WrongArguments, match="an argument is a"):
        anyjax.from_torch(lambda batch: batch["x"].relu())({"x": OTHER_ARRAYS[name]})


def test_params_of_other_names_or_of_numbers_are_refused():
    model = anyjax.from_torch(torch.nn.Linear(3, 2))
    for params in (
        {"w": X},
        {**model.params, "more": X},
        {"weight": X},
        {**model.params, "bias": 1},
    ):
        with pytest.raises(WrongArguments, match="do not fit"):
            model.with_params(params)


def test_keys_of_several_types():
    out = anyjax.from_torch(lambda x: {3: x, "a": {2.5: x * 2, (1,): [x]}})(X)
    assert [*out] == [3, "a"] and [*out["a"]] == [2.5, (1,)]
    assert_close(out["a"][2.5], 2 * X, reduction=1)


@pytest.mark.parametrize("mask", ["11", [[1.0, 1.0]]], ids=repr)
def test_an_argument_without_the_attributes_of_a_tensor_is_named(mask):
    model = anyjax.from_torch(lambda x, mask: x * mask.to(x.dtype))
    with pytest.raises(WrongArguments, match=f"mask is a {type(mask).__name__}, not an array"):
        model(X, mask)
    with pytest.raises(WrongArguments, match="mask is a"):
        model.apply({}, X, mask=mask)
    with pytest.raises(AttributeError, match="no attribute 'shape'"):  # of the code's own
        anyjax.from_torch(lambda x: [].shape)(X)
