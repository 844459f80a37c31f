"""``torch.inference_mode`` inside forward, and initialisers that draw until all values will do."""

import contextlib

import jax
import numpy as np
import pytest
import torch
from scipy import stats
from torch.nn.functional import scaled_dot_product_attention as attend

import anyjax
from anyjax.errors import LostGradient
from tests.open_sizes import with_open_rows
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=5)

X = np.array([1, -2, 3, 0.5], np.float32)


class Inferring(torch.nn.Module):
    """Views of parameters and buffers inside; what is made of them outside has gradients."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))
        self.register_buffer("seen", torch.ones(4))

    def forward(self, x):
        with torch.inference_mode():
            row, column = self.weight.view(3, 2)[0], self.weight.t()[1]
            size = (self.weight * 2).sum()
            tail = self.seen[1:].clone()
        with torch.inference_mode(False):
            square = (self.weight**2).sum()
        out = row.sum() * x + column.sum() + size + tail.sum() + square
        return out + self.weight[0].sum() * x


class Decorated(Inferring):
    """All of forward inside."""

    forward = torch.inference_mode()(Inferring.forward)


@pytest.mark.parametrize("cls", [Inferring, Decorated])
def test_inference_mode(cls):
    model = anyjax.from_torch(cls())
    with torch.no_grad():
        want = cls()(torch.from_numpy(X)).numpy()
    assert_close(model(X), want, reduction=16)
    lost = pytest.warns(LostGradient) if cls is Decorated else contextlib.nullcontext()
    with lost:
        got = jax.grad(lambda p: model.apply(p, X).sum())(model.params)["weight"]
    if cls is Inferring:  # as if the tensors of inference were detached
        outside = torch.arange(6.0).reshape(2, 3) * 8 + torch.tensor([[X.sum()], [0.0]])
        assert_close(got, outside.numpy(), reduction=16)
    assert not torch.is_inference_mode_enabled()
    assert torch.is_grad_enabled()


LIMITS = [(0.0, 1.0, -2.0, 2.0), (1.0, 0.5, 0.0, 3.0), (0.0, 1.0, 1.0, 4.0)]


@pytest.mark.parametrize(("mean", "std", "low", "high"), LIMITS)
def test_trunc_normal(mean, std, low, high):
    init = lambda x: torch.nn.init.trunc_normal_(torch.empty_like(x), mean, std, low, high)
    draws = anyjax.from_torch(init)(np.zeros(4000, np.float32), rng=jax.random.key(0))
    law = stats.truncnorm((low - mean) / std, (high - mean) / std, mean, std)
    assert stats.kstest(np.asarray(draws), law.cdf).pvalue > 1e-3
    assert draws.min() >= low
    assert draws.max() <= high


def test_hooks_of_what_torch_saves_are_told_to_be_without_meaning():
    graph = torch.autograd.graph

    def zeroed(x):
        with graph.saved_tensors_hooks(torch.zeros_like, lambda saved: saved):
            return x * x

    def moved(x):
        with graph.save_on_cpu():
            return x * x

    with pytest.warns(LostGradient, match="saved_tensors_hooks"):
        assert_close(anyjax.from_torch(zeroed)(X), X * X, reduction=1)
    assert_close(anyjax.from_torch(moved)(X), X * X, reduction=1)  # and warns of nothing


@torch.jit.script
def sums(x, places, size: int, dim: int = 0):
    shape = list(x.shape)
    shape[dim] = size
    return torch.zeros(shape).index_add(dim, places, x)


@torch.jit.script
def gate(x):
    return x * torch.sigmoid(x).view(x.shape[0], -1)


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: sums(gate(x), torch.arange(x.shape[0]) // 2, size=x.shape[0]),
        lambda x: torch.einsum("ab,bc,cd,ad->ad", x, torch.ones(3, 5), torch.ones(5, 3), x),
        lambda x: attend(x[None], x[None], x[None], is_causal=x.shape[0] > 1)[0],
    ],
    ids=["scripts", "einsum", "imported"],
)
def test_open_sizes_as_numbers(function, gradient):
    rows = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    model = anyjax.from_torch(function)
    want = jax.grad(lambda x: model(x).sum())(rows) if gradient else model(rows)
    assert_close(with_open_rows(function, rows, gradient=gradient), want, reduction=4)
