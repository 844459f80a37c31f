"""Errors about values say what works, and never the call that was just made."""

import functools
import re

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import AnyjaxError, DataDependent, WrongArguments
from tests.models import tiny

X = np.ones((2, 3), np.float32)


class Weighed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self, x, count=None, flag=False):
        if flag:
            return x[:1]
        return x.repeat(int(count[0]), 1) if count is not None else x * float(self.weight.sum())


MODELS = {
    "floats": lambda x: x * float(x.sum()),
    "integers": lambda x, n: x.repeat(int(n[0]), 1),
    "weights": Weighed(),
}
EAGER = "call model.apply(model.params, ...) outside of jax.jit"
CALLS = {
    "call": (lambda m, *args: m(*args), "model("),
    "apply": (lambda m, *args: jax.jit(m.apply)(m.params, *args), "model.apply(params"),
    "jit": (lambda m, *args: jax.jit(lambda *a: m(*a))(*args), "model("),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", MODELS)
def test_what_works_stands_first(call, name):
    model, (run, made) = anyjax.from_torch(MODELS[name]), CALLS[call]
    args = (X, np.array([2])) if name == "integers" else (X,)
    if (name, call) == ("integers", "call"):
        with pytest.warns(anyjax.errors.StaticArgument):
            run(model, *args)
        return
    with pytest.raises(DataDependent) as caught:
        run(model, *args)
    do = caught.value.do
    assert f"  do:    {do}\n  see: " in str(caught.value)
    by_value = "batch = anyjax.static" if call == "apply" else "close over n"
    assert do.startswith(by_value if name == "integers" else EAGER)
    assert made not in do
    works = functools.partial(model.apply, model.params)
    if name == "integers":
        closed = jax.jit(lambda x: works(x, args[1]))(X)
        np.testing.assert_array_equal(closed, works(*args))
    works(*args)


@pytest.fixture(scope="module")
def llama():
    return tiny.build("llama")[0]


@pytest.mark.parametrize("options", [{"use_cache": False}, {"output_hidden_states": True}], ids=str)
def test_python_values_that_jit_made_arrays(llama, options):
    """The first thing that readers of torchax's README try; the advice is followed by hand."""
    weights, func = anyjax.extract_jax(llama)
    ids, name = tiny.ids(5, 1).numpy(), next(iter(options))
    with pytest.raises(DataDependent) as caught:
        jax.jit(func)(weights, (ids,), options)
    assert f"the Python value of {name}" in caught.value.why
    assert f"jax.jit(lambda weights, x: func(weights, (x,), {{'{name}': ...}}))" in caught.value.do
    got = jax.jit(lambda weights, x: func(weights, (x,), options))(weights, ids)
    assert got.logits.shape == (1, 5, 96)


@pytest.mark.parametrize("value", [True, 2])
def test_python_values_beside_apply(value):
    model = anyjax.from_torch(lambda x, n: x.repeat(int(n) + 1, 1))
    with pytest.raises(
        DataDependent, match=re.escape("lambda params, x: model.apply(params, x, n=")
    ):
        jax.jit(model.apply)({}, X, n=value)
    got = jax.jit(lambda params, x: model.apply(params, x, n=value))({}, X)
    assert got.shape == (2 * (int(value) + 1), 3)


def test_other_advice_of_a_function_in_torchaxs_form():
    weights, func = anyjax.extract_jax(Weighed())
    with pytest.raises(DataDependent, match="call func outside of"):
        jax.jit(func)(weights, (X,), {})
    assert func(weights, (X,), {}).shape == (2, 3)


@pytest.mark.parametrize("params", [None, [1], X, 3.0, "weights"], ids=str)
def test_params_that_are_no_dict(params):
    model = anyjax.from_torch(Weighed())
    with pytest.raises(WrongArguments, match=r"not a dict .*\n.*\n.*model\.params"):
        model.apply(params, X)
    if params is not None:  # the model's own
        with pytest.raises(WrongArguments, match="state is a"):
            model.apply(model.params, X, state=params)


def test_params_that_are_no_arrays():
    model = anyjax.from_torch(Weighed())
    with pytest.raises(WrongArguments, match="weight is a NoneType, no array"):
        model.apply({"weight": None}, X)


def test_another_way_out():
    error = AnyjaxError("it broke", why="because", do="this")
    error.advise("that")
    assert str(error).startswith(
        "it broke\n  why:   because\n  do:    that\n  see:   anyjax explain AnyjaxError"
    )


def test_values_that_are_drawn_are_no_argument():
    model = anyjax.from_torch(lambda x: x * float(torch.rand(3).sum()))
    with pytest.raises(DataDependent) as error:
        model(X, rng=jax.random.key(0))
    assert EAGER in str(error.value) and "close over  " not in str(error.value)
