"""Parameters that forward replaces: the gradient of the new value reaches the parameter."""

import jax
import numpy as np
import pytest
import torch
import torch.autograd.forward_ad as forward_mode

import anyjax
from anyjax.errors import Unsupported
from tests.tolerance import assert_close

pytestmark = [
    pytest.mark.sample(every=4),
    pytest.mark.filterwarnings("ignore::anyjax.errors.StateDropped"),  # the next call would go on
]

X = np.array([3.0, 4.0], np.float32)


class Module(torch.nn.Module):
    def __init__(self, replace):
        super().__init__()
        self.w, self.replace = torch.nn.Parameter(torch.tensor([1.0, -2.0])), replace

    def forward(self, x):
        self.replace(self, x)
        return self.w**2 * x


def halved(self, x):
    self.w.data = self.w.data / 2


def by_an_input(self, x):
    self.w.data = x


def for_a_while(self, x):
    """What the old value shared memory with keeps it."""
    old = self.w.data
    self.w.data = old * 0 + 7
    assert (self.w.data - old).shape == (2,)
    self.w.data = old


def in_place(self, x):
    self.w.data.div_(2)


@torch.no_grad()
def clamped(self, x):
    self.w.clamp_(min=-1.5)


@torch.no_grad()
def copied(self, x):
    self.w.copy_(self.w / 2)


def weighted(module, out):
    return (out * np.cos(np.arange(out.size, dtype=np.float32)).reshape(out.shape)).sum()


def assert_same_gradients(module, *arrays):
    params = {k: v.detach().clone() for k, v in module.state_dict().items()}
    model = anyjax.from_torch(module)
    value = model(*arrays)
    by = jax.jit(jax.grad(lambda p: weighted(module, model.apply(p, *arrays))))(model.params)
    out = module(*map(torch.from_numpy, arrays))
    weighted(module, TensorLike(out)).backward()
    assert_close(value, out.detach().numpy(), reduction=8)
    for name, parameter in module.named_parameters():
        assert_close(by[name], parameter.grad.numpy(), reduction=8)
    module.load_state_dict(params)


class TensorLike:
    """What ``weighted`` needs of torch's result."""

    def __init__(self, tensor):
        self.tensor, self.size, self.shape = tensor, tensor.numel(), tuple(tensor.shape)

    def __mul__(self, array):
        return self.tensor * torch.from_numpy(array)


@pytest.mark.parametrize(
    "replace",
    [halved, by_an_input, for_a_while, in_place, clamped, copied],
    ids=lambda f: f.__name__,
)
def test_a_parameter(replace):
    assert_same_gradients(Module(replace), X)


@pytest.mark.parametrize("kind", [torch.nn.Embedding, torch.nn.EmbeddingBag])
def test_tables_with_a_greatest_norm(kind):
    torch.manual_seed(0)
    table = kind(5, 3, max_norm=0.7, padding_idx=2)
    assert_same_gradients(table, np.array([[0, 1, 1], [2, 4, 4]]))


def test_linearize():
    def function(x, t):
        y, forward = torch.func.linearize(lambda a, b: (a * b, a.sin()), x, x + 1)
        return *y, *forward(t, t * 2)

    def by_hand(x, t):
        return x * (x + 1), x.sin(), t * (x + 1) + 2 * t * x, x.cos() * t

    got = jax.jit(anyjax.from_torch(function).apply)({}, X, X - 2)
    want = by_hand(*map(torch.from_numpy, (X, X - 2)))
    assert_close(list(got), [x.numpy() for x in want], reduction=8)


def test_dual_numbers_of_autograd_are_refused():
    def function(x):
        with forward_mode.dual_level():
            return forward_mode.unpack_dual(forward_mode.make_dual(x, x) ** 2).tangent

    with pytest.raises(Unsupported, match="make_dual inside forward"):
        anyjax.from_torch(function)(X)
