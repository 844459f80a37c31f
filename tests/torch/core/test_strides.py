"""Strides: what is a copy in torch is a copy here, and as_strided reads the same elements."""

import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import Unsupported

pytestmark = pytest.mark.sample(every=5)

X = np.arange(24, dtype="float32").reshape(2, 3, 4)


def both(function, *arrays):
    """(torch's result, ours) of a function that may write to its own tensors."""
    want = function(*[torch.tensor(a) for a in arrays])
    return want, anyjax.from_torch(function).apply({}, *arrays)


def test_writing_to_a_contiguous_copy_leaves_the_original():
    def function(x):
        y = x.transpose(0, 1).contiguous()
        y.add_(10)
        z = x.transpose(1, 2).reshape(-1)
        z.mul_(3)
        return x + 0, y + 0, z + 0

    for want, got in zip(*both(function, X)):
        np.testing.assert_array_equal(want, got)


def test_an_elementwise_result_keeps_the_order_of_its_operand():
    def function(x):
        y = x.transpose(0, 1) + 1
        copy = y.contiguous()
        copy.zero_()
        return y + 0, y.as_strided((4,), (1,))

    for want, got in zip(*both(function, X)):
        np.testing.assert_array_equal(want, got)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.transpose(0, 2).as_strided((3, 2), (2, 5)),
        lambda x: x[1].as_strided((2, 2), (1, 4)),
        lambda x: x[1, 1:].t().as_strided((2, 2), (1, 4), 3),
        lambda x: x.unbind(1)[2].as_strided((2,), (12,)),
        lambda x: x.as_strided((2, 4, 3, 2), (12, 2, 1, 3)),
        lambda x: x.reshape(6, 4).diagonal().as_strided((3,), (5,)),
    ],
)
def test_as_strided_counts_in_the_memory_of_the_base(view):
    want, got = both(view, X)
    np.testing.assert_array_equal(want, got)


def test_bits_of_64_bit_types_are_not_to_be_had():
    with jax.enable_x64(False), pytest.raises(Unsupported, match="bits of"):
        anyjax.from_torch(lambda x: x.view(torch.int64)).apply({}, jnp.ones(4))


def step(r, pool):
    """One random view, copy or write of a random earlier tensor."""
    t = r.choice(pool)
    d, kind = t.dim(), r.randrange(14)
    if kind == 0 and d > 1:
        return t.transpose(r.randrange(d), r.randrange(d))
    if kind == 1:
        return t.contiguous()
    if kind == 2:
        return t.reshape(-1)
    if kind == 3 and d == 1 and t.numel() % 2 == 0:
        return t.reshape(2, -1)
    if kind == 4 and d and t.shape[0] > 1:
        return t[1:]
    if kind == 5 and d and t.shape[-1] > 2:
        return t[..., ::2]
    if kind == 6:
        return t + 1
    if kind == 7 and d > 1:
        return t.flatten(0, 1)
    if kind == 8:
        return t.unsqueeze(r.randrange(d + 1))
    if kind == 9:
        return t.clone()
    if kind == 10 and d:
        return t.unbind(0)[-1]
    if kind == 11 and d > 1:
        return t * torch.ones(t.shape[-1])
    return t.mul_(1.5)


@pytest.mark.parametrize("seed", range(40))
def test_random_views_copies_and_writes(seed):
    def function(x):
        r, pool, layouts = random.Random(seed), [x * 1.0], []
        for _ in range(12):
            pool.append(step(r, pool))
            seen = zip(pool[-1].stride(), pool[-1].shape)
            layouts.append(([s for s, n in seen if n > 1], pool[-1].storage_offset()))
        return [t + 0 for t in pool], layouts

    (want, layouts), (got, ours) = both(function, X)
    assert ours == layouts
    for a, b in zip(want, got):
        np.testing.assert_array_equal(a, b)
