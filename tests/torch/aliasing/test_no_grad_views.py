"""A detached tensor shares its values with the other one, and each has a gradient of its own."""

import jax
import numpy as np
import pytest
import torch

import anyjax
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=4)

X, W = np.arange(1, 5, dtype=np.float32), np.array([2.0, 3.0, 4.0, 5.0], np.float32)


def written_and_used(x, w):
    p = x.clone().detach()
    p += w
    return (p * p).sum()


def both_used(x, w):
    y = x * 2
    z = y.detach()
    z.mul_(w)
    return (z * 3).sum() + (y * y).sum()


def through_data(x, w):
    y = x * 2
    y.data.add_(w)
    return (y * y).sum()


def through_a_view(x, w):
    y = x * w
    z = y.detach()
    z[1:] = w[1:] * 2
    return (z * y).sum()


def the_other_is_written(x, w):
    y = x * 2
    z = y.detach()
    y = y.mul_(w)
    return (z * w).sum() + y.sum()


def chain(x, w):
    y = x * 1
    z = y.detach().detach()
    z.add_(w)
    return (y * z).sum()


CASES = [written_and_used, both_used, through_data, through_a_view, the_other_is_written, chain]


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_values_and_gradients(function):
    x, w = (torch.tensor(a, requires_grad=True) for a in (X, W))
    want = function(x, w)
    want.backward()
    model = anyjax.from_torch(function)
    got, grads = jax.jit(jax.value_and_grad(lambda x, w: model.apply({}, x, w), (0, 1)))(X, W)
    np.testing.assert_allclose(got, want.detach(), rtol=1e-6)
    for one, tensor in zip(grads, (x, w)):
        wanted = np.zeros(4) if tensor.grad is None else tensor.grad
        np.testing.assert_allclose(one, wanted, rtol=1e-6)


@pytest.mark.parametrize(
    "read",
    [
        lambda view: ~(view > 0)[:2],
        lambda view: ~view.view(torch.int32)[:2],
        lambda view: torch.stack(list(view)),
        lambda view: torch.stack([-row for row in view[:2]]),
        lambda view: view.abs(),
        lambda view: -view,
    ],
)
def test_reading_a_view_inside_no_grad_writes_nothing(read):
    def function(x):
        with torch.no_grad():
            view = x[1:]
            return read(view), view * 1

    x = np.arange(-6, 6, dtype=np.float32).reshape(4, 3)
    got = jax.jit(lambda x: anyjax.from_torch(function).apply({}, x))(x)
    assert_close(got, function(torch.tensor(x)))


@pytest.mark.parametrize("read", [lambda v: v.norm(), lambda v: v.abs(), lambda v: [v * 1, v]])
def test_a_view_that_no_grad_reads_after_a_write_keeps_its_gradient(read):
    def function(x):
        x = x * 1
        view = x.T[1:]
        x.mul_(3)
        with torch.no_grad():
            read(view)
        return (view * view).sum()

    x = torch.arange(-6.0, 6.0).reshape(4, 3).requires_grad_()
    function(x).backward()
    got = jax.jit(jax.grad(lambda x: anyjax.from_torch(function).apply({}, x)))(x.detach().numpy())
    assert_close(got, x.grad.numpy())


@pytest.mark.parametrize("shape", [lambda t: t.t_(), lambda t: t.resize_(2, 3), lambda t: t.T])
@pytest.mark.parametrize("of", ["base", "view"])
@pytest.mark.parametrize("made", [lambda x: x[1:], lambda x: x.detach()], ids=["no_grad", "detach"])
def test_a_view_stays_where_it_was_when_a_tensor_is_given_another_shape(made, of, shape):
    def function(x):
        x = x * 1
        with torch.no_grad():
            view = made(x)
            shape(x if of == "base" else view)
            part = view[:, 1:]
            part.mul_(3)
            view.add_(1)
        return x * 1, view * 1, part * 1

    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    got = jax.jit(lambda x: anyjax.from_torch(function).apply({}, x))(x)
    assert_close(got, function(torch.tensor(x)))
