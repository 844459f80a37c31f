"""Tuples of classes of their own in attributes: kept, and never made by their ``__new__``."""

import collections

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.torch.objects.walk import alike
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=4)

X = np.array([1, -2, 3, 0.5], np.float32)


class Irrep(tuple):
    """As those of e3nn: made of a text, or of another one."""

    def __new__(cls, text):
        if isinstance(text, Irrep):
            return text
        return super().__new__(cls, (int(text[0]), {"e": 1, "o": -1}[text[1]]))

    @property
    def dim(self):
        """How many numbers it takes."""
        return 2 * self[0] + 1

    def __len__(self):
        raise NotImplementedError


class Irreps(tuple):
    """Several of them, from one text."""

    def __new__(cls, text):
        return super().__new__(cls, map(Irrep, text.split("+")))

    @property
    def dim(self):
        """That of all."""
        return sum(one.dim for one in self)


class Pair(collections.namedtuple("Pair", "a b")):
    """Two fields of one argument."""

    def __new__(cls, a):
        return super().__new__(cls, a, a)


class Equivariant(torch.nn.Module):
    """Holds such tuples in every way, some with tensors in them."""

    def __init__(self):
        super().__init__()
        self.irreps, self.pair = Irreps("0e+1o"), Pair(3)
        self.listed, self.named = [Irrep("1o")], {"k": Irreps("2e")}
        self.mixed = (Irreps("0e"), torch.ones(4))
        self.tensors = Pair(torch.ones(4))
        self.weight = torch.nn.Parameter(torch.ones(4))

    def forward(self, x):
        held = [*self.irreps, *self.listed, *self.named["k"], *self.mixed[0]]
        assert all(type(irrep) is Irrep for irrep in held)
        assert type(self.tensors) is Pair
        size = self.irreps.dim * self.pair.a * self.listed[0].dim * self.named["k"].dim
        return x * self.weight * size + self.mixed[1] + self.tensors.a


@pytest.mark.parametrize("mutable", [False, True])
def test_tuples_of_other_classes(mutable):
    module = Equivariant()
    before = dict(vars(module))
    model = anyjax.from_torch(module)
    want = module(torch.from_numpy(X)).detach().numpy()
    assert_close(model(X), want)
    out = jax.jit(lambda p, x: model.apply(p, x, mutable=mutable))(model.params, X)
    assert_close(out[0] if mutable else out, want)
    for name in ("irreps", "pair", "listed", "named", "mixed", "tensors"):
        assert vars(module)[name] is before[name]
    assert module.tensors.a is module.tensors.b


def test_alike():
    """Fields, class and further attributes are those of the original."""
    irreps = Irreps("0e+1o")
    irreps.note = "kept"
    made = alike(irreps, [1, 2])
    assert (type(made), tuple(made), made.note) == (Irreps, (1, 2), "kept")
    assert alike(Pair(1), [2, 3]) == (2, 3)
    extremes = torch.ones(2, 3).max(0)
    assert type(alike(extremes, [*extremes])) is type(extremes)


class Filled:
    """An empty cache, which a call fills."""

    def __init__(self):
        self.layers, self.seen, self.shape = [], {}, (2,)


@pytest.mark.parametrize("returned", [True, False])
def test_objects_among_the_arguments_are_what_they_were(returned):
    def forward(x, cache):
        cache.layers.append(2 * x)
        cache.seen["mean"], cache.shape = x.mean(), (3, 4)
        return (sum(cache.layers), cache) if returned else sum(cache.layers)

    model, cache = anyjax.from_torch(forward), Filled()
    for _ in range(2):  # traced, and compiled
        out = model(X, cache)
        assert vars(cache) == {"layers": [], "seen": {}, "shape": (2,)}
    if returned:
        assert [type(out[1]), len(out[1].layers), out[1].shape] == [Filled, 1, (3, 4)]
        assert_close(out[1].layers[0], 2 * X)
        out = model(X, out[1])
    assert_close(out[0] if returned else out, (4 if returned else 2) * X)


def test_arguments_whose_class_copies_itself():
    class Named(dict):
        def __init__(self, **named):
            super().__init__(**named)
            self.first = named["first"]

        def copy(self):
            return type(self)(**{k: x for k, x in self.items() if k != "first"})

    given = Named(first=np.ones(2, np.float32), second=np.zeros(2, np.float32))
    model = anyjax.from_torch(lambda named: named["first"] + named["second"])
    np.testing.assert_array_equal(model(given), 1)
    assert sorted(given) == ["first", "second"]
