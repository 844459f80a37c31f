"""``x.item()`` of a traced tensor is the number itself: it is compared and computed with."""

import math

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import DataDependent
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=4)

X = np.array([[1.0, -2.0, 6.0], [0.5, 4.0, -1.0]], np.float32)
LOW = X / 10


def compared(x):
    return x * 2 if x.max().item() > 5 else x.cos()


def computed(x):
    low, high = x.min().item(), x.max().item()
    return (x - low) / max(high - low, 1e-5)


def counted(x):
    found = (x > 0).sum().item()
    if found == 0:
        return x
    return x / found


def chained(x):
    return x + 1 if 0 < x.max().item() < 5 else x - 1


def member(x):
    return x.exp() if (x > 0).sum().item() in (2, 4) else x.sin()


def numbers(x):
    scale = 3 * x.abs().mean().item() ** 0.5
    return x.clamp(max=scale) if math.pi < 4 else x


@pytest.mark.parametrize("function", [compared, computed, counted, chained, member, numbers])
@pytest.mark.parametrize("x", [X, LOW, -np.abs(X)], ids=["large", "small", "negative"])
def test_items_under_jit(function, x):
    got = jax.jit(anyjax.from_torch(function).apply)({}, x)
    assert_close(got, function(torch.tensor(x)), reduction=6)


@pytest.mark.parametrize("function", [compared, computed, counted])
def test_no_gradient_passes_through_an_item(function):
    given = torch.tensor(X, requires_grad=True)
    function(given).square().sum().backward()
    loss = lambda x: (anyjax.from_torch(function).apply({}, x) ** 2).sum()
    assert_close(jax.jit(jax.grad(loss))(X), given.grad, reduction=6)


NEED = {
    "range": lambda x: sum(x[0, i] for i in range(int(x.abs().max().item()))),
    "index": lambda x: [x, x + 1][(x > 0).all().long().item()],
    "float": lambda x: x * math.sqrt(x.max().item()),
    "size": lambda x: torch.zeros(x.long().max().item()),
    "full": lambda x: x + float(x.max().item()),
    "array": lambda x: x + np.zeros(x.long().max().item()).sum(),
}


@pytest.mark.parametrize("name", NEED)
def test_what_needs_the_number_itself_says_so(name):
    with pytest.raises(DataDependent, match=r"where: .*test_value_queries.py"):
        jax.jit(anyjax.from_torch(NEED[name]).apply)({}, X)


def test_an_item_decides_a_shape_in_a_model():
    function = lambda x, n: x[: n.sum().item()]
    model = anyjax.from_torch(function)
    with pytest.warns(anyjax.errors.StaticArgument, match="n"):
        out = model(X[0], np.array([1, 1]))
    assert_close(out, X[0, :2])


EQUAL = {
    "torch.equal": lambda x, y: x * 2 if torch.equal(x, y) else x - y,
    "of a method": lambda x, y: x * 2 if x[:1].equal(y[:1]) else x - y,
    "of other shapes": lambda x, y: x * 2 if torch.equal(x, y[:1]) else x - y,
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_tensors_under_jit(name):
    function, run = EQUAL[name], jax.jit(anyjax.from_torch(EQUAL[name]).apply)
    for y in (X, LOW, X * [[1], [2]]):
        y = y.astype(np.float32)
        assert_close(run({}, X, y), function(torch.tensor(X), torch.tensor(y)))


class Graph:
    def __init__(self, count):
        self.index = torch.arange(count)


@pytest.mark.filterwarnings("ignore::anyjax.errors.StaticArgument")
def test_integers_in_an_object_decide_a_shape():
    model = anyjax.from_torch(lambda graph: torch.ones(int(graph.index.max()) + 1) * graph.index)
    for count in (3, 5, 3):
        assert model(Graph(count)).tolist() == [*range(count)]
