"""Loops: one is written only where each of a list's members is used once and in order."""

import pytest
import torch
from flax import nnx
from torch import nn

import anyjax
from tests.flax.codegen.models import drawn
from tests.flax.codegen.running import arrays, assert_same_values, loaded, prepared

pytestmark = pytest.mark.sample(every=15)

SIZE = 3


class Lists(nn.Module):
    """A list of layers, of parameters, of buffers, and of lists; a subclass uses them."""

    def __init__(self):
        super().__init__()
        layers = lambda count: nn.ModuleList(nn.Linear(SIZE, SIZE) for _ in range(count))
        self.layers, self.nested = layers(4), nn.ModuleList(layers(2) for _ in range(3))
        self.p = nn.ParameterList(torch.randn(SIZE) for _ in range(4))
        self.q = nn.ParameterList(torch.randn(SIZE) for _ in range(2))
        self.kept = nn.Module()
        for i in range(4):
            self.kept.register_buffer(str(i), torch.randn(SIZE))


def scaled(x, scales):
    for scale in scales:
        x = torch.tanh(x) * scale
    return x


def through(x, layers):
    for layer in layers:
        x = torch.tanh(layer(x))
    return x


def buffers(m):
    return [m.kept.get_buffer(str(i)) for i in range(4)]


def zipped(x, layers, scales):
    for layer, scale in zip(layers, scales):
        x = layer(x) + scale
    return x


def ordered(values, places):
    return [values[i] for i in places]


WRITTEN_OUT = {
    "there and back": [0, 1, 0],
    "again from the start": [0, 1, 0, 1, 0],
    "turned around": [3, 2, 1, 0],
    "every other": [0, 2],
    "one twice": [0, 0, 1, 2, 3],
    "the last twice": [0, 1, 2, 3, 3],
    "one left out": [0, 1, 3],
    "the first two": [0, 1],
    "the middle two": [1, 2],
    "all but the first": [1, 2, 3],
    "all": [0, 1, 2, 3],
    "all and all": [0, 1, 2, 3, 0, 1, 2, 3],
    "all and the first": [0, 1, 2, 3, 0],
    "halves exchanged": [2, 3, 0, 1],
}
CASES = {
    **{f"parameters, {k}": lambda m, x, v=v: scaled(x, ordered(m.p, v))
       for k, v in WRITTEN_OUT.items()},
    **{f"buffers, {k}": lambda m, x, v=v: scaled(x, ordered(buffers(m), v))
       for k, v in WRITTEN_OUT.items()},
    **{f"layers, {k}": lambda m, x, v=v: through(x, ordered(m.layers, v))
       for k, v in WRITTEN_OUT.items()},
    **{f"zip, {k}": lambda m, x, v=v: zipped(x, m.layers, ordered(m.p, v))
       for k, v in WRITTEN_OUT.items()},
    **{f"zip by turns, {k}": lambda m, x, v=v: zipped(
        x, ordered(m.layers, v), [m.q[i % 2] for i in range(9)]) for k, v in WRITTEN_OUT.items()},
    **{f"lists of lists, {k}": lambda m, x, v=v: through(
        x, [y for i in v if i < 3 for y in m.nested[i]]) for k, v in WRITTEN_OUT.items()},
    "other way": lambda m, x: zipped(x, m.layers, [m.q[1 - i % 2] for i in range(4)]),
    "a member in each round": lambda m, x: zipped(x, m.layers, [p * m.p[1] for p in m.p]),
    "the first in each round": lambda m, x: zipped(x, m.layers, [p + m.p[0] for p in m.p]),
    "a layer's weight in each round": lambda m, x: zipped(
        x, m.layers, [m.layers[1].bias for _ in range(4)]),
    "one list by two paces": lambda m, x: zipped(x, m.layers, [*m.p[1:], m.p[0]]),
    "the part before": lambda m, x: scaled(scaled(x, m.p[:3]) * 2, m.p[3:]),
    "columns of lists": lambda m, x: through(x, [y[1] for y in m.nested]),
    "columns and rows": lambda m, x: through(x, [y[i] for i in (1, 0) for y in m.nested]),
}  # fmt: skip


def made(name):
    torch.manual_seed(0)
    used = CASES[name]
    return type("Uses", (Lists,), {"forward": lambda self, x: used(self, x)})().eval()


@pytest.mark.parametrize("name", CASES)
def test_each_use_of_a_list_is_written(name):
    module = made(name)
    _, model = prepared(module, (drawn(2, SIZE),))
    assert_same_values(module, model, (drawn(4, SIZE),))


@pytest.mark.parametrize("name", CASES)
def test_each_use_of_a_list_is_written_in_linen(name):
    module = made(name)
    file = loaded(anyjax.flax.source(module, drawn(2, SIZE), style="linen"))
    weights = file.load_params({k: v.detach().numpy() for k, v in module.state_dict().items()})
    got = file.Uses().apply(weights, *arrays([drawn(4, SIZE)]))
    assert_same_values(module, lambda _: got, (drawn(4, SIZE),))


def test_a_list_that_is_used_once_and_in_order_is_a_loop():
    for name in ("parameters, all", "layers, all", "zip, all", "buffers, all but the first"):
        assert anyjax.flax.source(made(name), drawn(2, SIZE)).count("for layer") == 1, name


class Shared(nn.Module):
    """A list that has one of its layers twice."""

    def __init__(self):
        super().__init__()
        first, second = nn.Linear(SIZE, SIZE), nn.Linear(SIZE, SIZE)
        self.layers = nn.ModuleList([first, second, first])

    def forward(self, x):
        return through(x, self.layers)


class FromOne(nn.Module):
    """Modules whose numbers begin with 1."""

    def __init__(self):
        super().__init__()
        for i in range(1, 4):
            self.add_module(str(i), nn.Linear(SIZE, SIZE))

    def forward(self, x):
        return through(x, self.children())


@pytest.mark.parametrize("cls", [Shared, FromOne])
def test_lists_whose_numbers_are_not_their_members(cls):
    module = cls().eval()
    weights = {k: v for k, v in module.state_dict().items() if not k.startswith("layers.2")}
    file = loaded(anyjax.flax.source(module, drawn(2, SIZE)))
    model = getattr(file, cls.__name__)(rngs=nnx.Rngs(0))
    file.load_params(model, {k: v.numpy() for k, v in weights.items()})
    assert_same_values(module, model, (drawn(4, SIZE),))
