"""Factors that are tensors."""

import jax
import numpy as np
import torch

import anyjax
from tests.tolerance import assert_close


def function(x, a):
    y = x.clone().add_(x, alpha=a)
    y.addcdiv_(x, y * y + 1, value=-a)
    return torch.sub(y.addcmul(x, y, value=a), x, alpha=2), torch.add(y, x, alpha=a)


def test_of_the_program():
    x = np.arange(6, dtype=np.float32)
    got = jax.jit(anyjax.from_torch(function).apply)({}, x, np.float32(0.3))
    want = function(torch.from_numpy(x), torch.tensor(0.3))
    for one, other in zip(got, want):
        assert_close(one, other, reduction=4)
