"""Every kind of object that holds tensors is read, written, and put back."""

import argparse
import collections
import dataclasses
import functools
import itertools
import random
import types
import warnings

import jax
import numpy as np
import pytest
import torch
from torch import nn

import anyjax
from anyjax.errors import LostGradient, StateDropped, Unsupported
from anyjax.torch.objects.contents import contents, restore

pytestmark = pytest.mark.sample(every=4)

X = np.ones(2, np.float32)


class Slotted:
    __slots__ = ("total",)

    def __init__(self, total):
        self.total = total


class Both(Slotted):
    def __init__(self, total):
        super().__init__(total)
        self.other = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    totals: list


class Called:
    def __init__(self, total):
        self.total = total

    def __call__(self, x):
        return self.total.add_(x) * 1


def closure(total):
    return lambda x: total.add_(x) * 1


def nonlocal_variable(total):
    def add(x):
        nonlocal total
        total = total + x
        return total * 1

    return add


def default(total):
    def add(x, memory=(total,)):
        return memory[0].add_(x) * 1

    return add


def keyword(total):
    def add(x, *, memory=total):
        return memory.add_(x) * 1

    return add


def to_attribute(name, in_place=True):
    def add(holder, x):
        if in_place:
            getattr(holder, name).add_(x)
        else:
            setattr(holder, name, getattr(holder, name) + x)
        return getattr(holder, name) * 1

    return add


def to_item(key):
    def add(holder, x):
        holder[key] = holder[key] + x
        return holder[key] * 1

    return add


def by_call(holder, x):
    return holder(x)


# What a module holds around a tensor, and how forward adds to it.
KINDS = {
    "slots": (Slotted, to_attribute("total")),
    "slots, another tensor": (Slotted, to_attribute("total", in_place=False)),
    "slots and attributes": (Both, to_attribute("total", in_place=False)),
    "a frozen dataclass": (lambda t: Frozen([t]), lambda o, x: to_item(0)(o.totals, x)),
    "a namespace": (lambda t: types.SimpleNamespace(total=t), to_attribute("total")),
    "options": (lambda t: argparse.Namespace(total=t), to_attribute("total", in_place=False)),
    "a dict of somebody's own": (lambda t: collections.UserDict(total=t), to_item("total")),
    "a default dict": (
        lambda t: collections.defaultdict(list, a=[t]),
        lambda o, x: to_item(0)(o["a"], x),
    ),
    "a closure": (closure, by_call),
    "a variable around a function": (nonlocal_variable, by_call),
    "a default": (default, by_call),
    "a default by keyword": (keyword, by_call),
    "a partial": (lambda t: functools.partial(lambda total, x: total.add_(x) * 1, t), by_call),
    "a partial by keyword": (
        lambda t: functools.partial(lambda x, total: total.add_(x) * 1, total=t),
        by_call,
    ),
    "a method": (lambda t: Called(t).__call__, by_call),
    "an object that is called": (Called, by_call),
    "methods in a dict": (lambda t: {"add": [Called(t).__call__]}, lambda o, x: o["add"][0](x)),
}


class Holds(nn.Module):
    def __init__(self, make, add):
        super().__init__()
        self.holder, self.add = make(torch.zeros(2)), add

    def forward(self, x):
        return self.add(self.holder, x)


def carried(model, steps=3):
    """The first number of each call, whose state goes into the next one."""
    run = jax.jit(lambda state, x: model.apply(model.params, x, state=state, mutable=True))
    state, numbers = model.state, []
    for _ in range(steps):
        out, state = run(state, X)
        numbers.append(float(out[0]))
    return numbers


@pytest.mark.parametrize("kind", KINDS)
def test_a_tensor_is_state_whoever_holds_it(kind):
    module = Holds(*KINDS[kind])
    assert carried(anyjax.from_torch(module)) == [1, 2, 3]
    assert [float(module(torch.ones(2))[0]) for _ in range(3)] == [1, 2, 3]  # as it was


@pytest.mark.parametrize("kind", KINDS)
def test_a_function_has_the_same_state(kind):
    make, add = KINDS[kind]
    holder = make(torch.zeros(2))
    function = lambda x: add(holder, x)
    assert carried(anyjax.from_torch(function)) == [1, 2, 3]
    assert [float(function(torch.ones(2))[0]) for _ in range(3)] == [1, 2, 3]


def test_dicts_by_weights():
    class Keyed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.sums = nn.Linear(2, 2), {}

        def forward(self, x):
            weight = self.layer.weight
            self.sums[weight] = self.sums.get(weight, 0) + x
            return self.sums[weight] * 1

    model = anyjax.from_torch(Keyed())
    assert carried(model) == [1, 2, 3]
    assert [*model.apply(model.params, X, mutable=True)[1]] == ["sums.<layer:weight>"]


class Weights(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.holder = make([nn.Linear(2, 1), nn.Parameter(torch.ones(1))])

    def forward(self, x):
        layer, scale = self.holder() if callable(self.holder) else self.holder
        return layer(x) * scale


HOLDERS = {
    "a list": lambda x: x,
    "a tuple": tuple,
    "a function": lambda x: lambda: x,
    "a partial": lambda x: functools.partial(lambda pair: pair, x),
}


@pytest.mark.parametrize("kind", HOLDERS)
def test_weights_that_a_function_reaches_are_its_params(kind):
    holder = HOLDERS[kind]([nn.Linear(2, 1), nn.Parameter(torch.ones(1))])

    def function(x):
        layer, scale = holder() if callable(holder) else holder
        return layer(x) * scale

    model = anyjax.from_torch(function)
    assert sorted(x.shape for x in model.params.values()) == [(1,), (1,), (1, 2)]
    grads = jax.grad(lambda p: model.apply(p, X).sum())(model.params)
    assert all(np.any(g) for g in grads.values())


def test_a_module_that_hides_weights():
    module = Weights(lambda pair: pair)
    with pytest.warns(LostGradient, match="holder of Weights holds weights that params lack"):
        model = anyjax.from_torch(module)
    np.testing.assert_allclose(model(X), module(torch.ones(2)).detach(), rtol=1e-6)
    for weight in (*module.holder[0].parameters(), module.holder[1]):
        weight.requires_grad_(False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        anyjax.from_torch(module)
        anyjax.from_torch(nn.LSTM(2, 2))  # has its weights in lists, too


GENERATORS = {
    "random": (lambda: random.Random(0), lambda g: g.random()),
    "numpy": (lambda: np.random.default_rng(0), lambda g: g.random()),
    "numpy's old": (lambda: np.random.RandomState(0), lambda g: g.rand()),
}


@pytest.mark.parametrize("kind", GENERATORS)
def test_a_generator_that_a_module_holds(kind):
    make, draw = GENERATORS[kind]

    class Draws(nn.Module):
        def __init__(self):
            super().__init__()
            self.generator = make()

        def forward(self, x):
            return x * draw(self.generator)

    module = Draws()
    model = anyjax.from_torch(module)
    with pytest.warns(StateDropped, match="forward changes generator"):
        model(X)
    np.testing.assert_allclose(model(X), module(torch.ones(2)), rtol=1e-6)


def test_an_array_of_numpy_that_forward_writes():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.count = np.zeros(2, np.float32)

        def forward(self, x):
            self.count += 1
            return x * torch.from_numpy(self.count)

    module = Counts()
    with pytest.warns(StateDropped, match="forward changes count"):
        anyjax.from_torch(module)(X)
    assert not module.count.any()


def counted(start):
    class Counted(nn.Module):
        calls = start

        def forward(self, x):
            type(self).calls += 1
            return x * type(self).calls

    return Counted()


def around(start):
    calls = start

    def function(x):
        nonlocal calls
        calls += 1
        return x * calls

    return function


class Iterates(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.numbers = make()

    def forward(self, x):
        return x * next(self.numbers)


NUMBERS = {
    "calls of a class": lambda: counted(0),
    "calls around a function": lambda: around(0),
    "numbers of a list": lambda: Iterates(lambda: iter([1.0, 2.0, 3.0, 4.0, 5.0])),
    "numbers of a count": lambda: Iterates(lambda: itertools.count(1)),
    "numbers of a cycle": lambda: Iterates(lambda: itertools.cycle([1.0, 2.0])),
    "numbers of a chain": lambda: Iterates(lambda: itertools.chain([1.0], {2.0: 3.0})),
    "numbers of a map": lambda: Iterates(lambda: map(float, range(1, 9))),
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_that_no_state_carries_are_named(kind):
    source = NUMBERS[kind]()
    model = anyjax.from_torch(source)
    with pytest.warns(StateDropped, match=f"forward changes {kind.split()[0]}"):
        out = model(X)
    np.testing.assert_array_equal(out, X)
    if isinstance(source, Iterates):
        assert next(source.numbers) == 1


def test_a_generator_that_goes_on_is_refused():
    model = anyjax.from_torch(Iterates(lambda: (float(i) for i in range(1, 9))))
    with pytest.raises(Unsupported, match="goes on with the generator numbers"):
        model(X)


def test_contents_are_put_back():
    function = default(1)
    for value in (Slotted(1), Both(2), function, functools.partial(max, 1, 2), closure(3)):
        holder = contents(value)
        before = holder.copy()
        for name in [*holder]:
            holder[name] = None
        assert all(x is None for x in contents(value).values())
        restore(holder, before)
        assert contents(value) == before
