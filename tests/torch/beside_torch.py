"""A function of torch tensors in torch and in JAX: the same values and gradients, at edges, too."""

from __future__ import annotations

import jax
import numpy as np
import torch

import anyjax
from tests.tolerance import assert_close

F = np.float32
# Where functions have kinks, and where they end; a leaf is compared with its largest number.
EDGES = np.array([0, -0.0, 1, -1, 3, -3, 6, 0.5, 1e-30], F)
FAR = np.array([100, -100, 1e30, -1e30], F)
INFINITE = np.array([np.inf, -np.inf], F)
NAN = np.array([np.nan], F)


def tensors(arrays, differentiable=False):
    out = [torch.from_numpy(np.array(a)) for a in arrays]
    return [t.requires_grad_(differentiable and t.is_floating_point()) for t in out]


def as_list(out) -> list:
    return list(out) if isinstance(out, (tuple, list)) else [out]


def assert_same_values(function, *arrays, reduction=1, **options):
    """In one compiled program, and operator by operator."""
    want = [x.numpy() for x in as_list(function(*tensors(arrays)))]
    apply = anyjax.from_torch(function).apply
    for run in (jax.jit(apply), apply):
        got = as_list(run({}, *arrays))
        assert_close([np.asarray(x) for x in got], want, reduction=reduction, **options)


def gradients(function, *arrays):
    """(JAX's, torch's) gradients by all floats, of one sum of all results, differently weighted."""
    given = tensors(arrays, True)
    outs = as_list(function(*given))
    weights = [np.cos(np.arange(x.numel(), dtype=F)).reshape(x.shape) for x in outs]
    by = [t for t in given if t.requires_grad]
    terms = [(x * torch.from_numpy(w)).sum() for x, w in zip(outs, weights) if x.requires_grad]
    want = torch.autograd.grad(sum(terms), by, allow_unused=True, materialize_grads=True)
    apply = anyjax.from_torch(function).apply

    def loss(*arrays):
        outs = as_list(apply({}, *arrays))
        return sum((x * w).sum() for x, w in zip(outs, weights))

    places = tuple(i for i, t in enumerate(given) if t.requires_grad)
    got = jax.jit(jax.grad(loss, places))(*arrays)
    return [np.asarray(x) for x in got], [x.numpy() for x in want]


def assert_same_gradients(function, *arrays, reduction=1, **options):
    got, want = gradients(function, *arrays)
    assert_close(got, want, reduction=reduction, **options)
