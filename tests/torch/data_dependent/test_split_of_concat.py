"""What was joined and cut again at the same places: the parts themselves."""

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import StaticArgument, Unsupported
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=4)

X = np.random.default_rng(0).normal(size=(2, 5, 3)).astype(np.float32)
MASK = np.array([[1, 1, 0, 1, 0], [1, 0, 0, 1, 0]])
run = lambda function, *args: jax.jit(lambda *a: anyjax.from_torch(function).apply({}, *a))(*args)


def packed(x, mask):
    """As models keep a mask beside keys: selected rows come from its values."""
    both = torch.cat([x.sin(), mask.to(x.dtype)[..., None]], dim=-1)
    keys, valid = torch.split(both, [3, 1], dim=-1)
    return keys[:, valid.bool().squeeze(-1).any(0).tolist()]


def test_a_mask_packed_beside_floats_decides_alone():
    with pytest.warns(StaticArgument, match="mask"):
        out = anyjax.from_torch(packed)(X, MASK)
    assert_close(out, packed(torch.tensor(X), torch.tensor(MASK)).numpy())


def test_a_packed_constant_is_known_under_jit():
    fixed = lambda x: packed(x, torch.tensor(MASK))
    assert_close(run(fixed, X), packed(torch.tensor(X), torch.tensor(MASK)).numpy())


@pytest.mark.parametrize(
    "cut",
    [
        lambda x: x[:, 5:10],
        lambda x: x[:, 5:10:2],
        lambda x: x[1:, 5:10],
        lambda x: x[:, 4:9],
        lambda x: x.split(5, 1)[1],
        lambda x: x.chunk(3, 1)[2],
        lambda x: x.split([2, 3, 5, 5], 1)[2],
        lambda x: x[:, 5:10].add_(1) + x[:, 5:10],
        lambda x: x.add_(1)[:, 5:10],
    ],
)
def test_cuts_have_torchs_values_and_gradients(cut):
    def function(x):
        with torch.no_grad():
            constant = torch.ones(2, 5, 3)
        return cut(torch.cat([x, x * 2, constant], 1)) * 3

    x = torch.tensor(X, requires_grad=True)
    want = function(x)
    assert_close(run(function, X), want.detach().numpy())
    grad = jax.grad(lambda x: (run(function, x) ** 2).sum())(X)
    expected = torch.autograd.grad((want**2).sum(), x, allow_unused=True)[0]
    assert_close(grad, np.zeros_like(X) if expected is None else expected.numpy())


def joined_without_gradients(x):
    with torch.no_grad():
        both = torch.cat([x, x], 1)
    return both[:, :5] * x


def cut_without_gradients(x):
    both = torch.cat([x, x], 1)
    with torch.no_grad():
        one = both[:, :5]
    return one * x


def written_without_gradients(x):
    both = torch.cat([x, x * 1], 1)
    with torch.no_grad():
        both[:, :5].copy_(x[0, 0])
    return both[:, :5] * x


@pytest.mark.parametrize(
    "function", [joined_without_gradients, cut_without_gradients, written_without_gradients]
)
def test_what_no_grad_says_of_parts(function):
    x = torch.tensor(X, requires_grad=True)
    function(x).sum().backward()
    assert_close(jax.grad(lambda x: run(function, x).sum())(X), x.grad.numpy())


def test_the_memory_around_a_part_is_refused():
    def function(x):
        part = torch.cat([x, torch.zeros(2, 5, 3)], 1)[:, 5:]
        return part.as_strided((2, 3), (1, 1), 0)

    with pytest.raises(Unsupported, match="as_strided"):
        run(function, X)
