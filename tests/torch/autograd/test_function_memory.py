"""torch.autograd.Function whose results lie in memory that was written to."""

import numpy as np
import pytest
import torch

from tests.open_sizes import with_open_rows
from tests.tolerance import assert_close
from tests.torch.autograd.test_custom_function import Returned
from tests.torch.beside_torch import assert_same_gradients

pytestmark = pytest.mark.sample(every=2)

X = np.linspace(-2, 2, 6, dtype=np.float32)


class Unchecked(torch.autograd.Function):
    """Writes to its argument behind autograd's back and returns it, as torchdiffeq's steps do."""

    @staticmethod
    def forward(ctx, x, value, index):
        ctx.index = index
        x.data[index] = value
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, grad[ctx.index], None


def stages(x):
    rows = torch.empty(3, 6)
    for i in range(3):
        x = x + rows[:i].sum(0)
        rows = Unchecked.apply(rows, x.sin(), i)
    return (rows * torch.tensor([[1.0], [2], [3]])).sum(0) + rows[-1]


def argument(x):
    rows = torch.zeros(2, 6)
    rows[0] = x
    out = Returned.apply(rows)
    return out[0] * 2 + rows[0] * 3 + out.sum(0) * 7


def view_of_an_argument(x):
    rows = torch.zeros(2, 6)
    rows[0] = x
    row = rows[0]
    out = Returned.apply(row)
    return out * 2 + row * 3 + rows[0] * 11 + out[:2].sum()


def leaf_that_was_written_to(x):
    rows = torch.zeros(2, 6)
    rows[0] = x.detach()
    rows.requires_grad_()
    (slope,) = torch.autograd.grad((rows[0] ** 3).sum(), rows, create_graph=True)
    return x * slope.sum(0)


@pytest.mark.parametrize(
    "function", [stages, argument, view_of_an_argument, leaf_that_was_written_to]
)
def test_views_of_memory_that_was_written_to(function):
    assert_same_gradients(function, X, reduction=10)


class Filled(torch.autograd.Function):
    """Its result is memory that was written piece by piece, or a view of that."""

    @staticmethod
    def forward(ctx, x, view):
        rows = torch.empty(2, *x.shape)
        for i in range(2):
            rows[i] = x * i
        return view(rows)

    @staticmethod
    def backward(ctx, grad):
        return -grad.sum(0) if grad.dim() > 1 else -grad, None


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x[1], lambda x: x.view(-1)[6:]])
def test_a_result_that_was_written_to(view):
    assert_same_gradients(lambda x: Filled.apply(x, view), X)


class Cut(torch.autograd.Function):
    """Its backward writes to chosen elements, and reads a size."""

    @staticmethod
    def forward(ctx, x, rows):
        ctx.save_for_backward(x)
        ctx.rows = rows
        return x.clamp(min=0.0) ** 2

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        slope = torch.zeros_like(x)
        slope[x > 0.2] = x[x > 0.2] * 3
        return slope * grad * ctx.rows, None


def slope_of(function):
    def slope(x):
        x = x.requires_grad_()
        return torch.autograd.grad(function(x).sum(), x, create_graph=True)[0]

    return slope


@pytest.mark.parametrize("gradient", [False, True])
def test_open_sizes(gradient):
    rows = np.array([[0.5, -1.0], [0.1, 2.0], [0.3, 0.7]], np.float32)
    function = lambda x: Cut.apply(x * 2, x.shape[0]) * x
    slope = slope_of(function)
    want = slope_of(slope) if gradient else slope
    out = with_open_rows(slope, rows, gradient=gradient)
    assert_close(out, want(torch.from_numpy(rows)).detach().numpy(), reduction=4)
