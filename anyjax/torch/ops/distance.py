"""Distances between rows: cdist and pdist."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.torch.core.schema import aten, lowers
from anyjax.torch.ops._operands import absolute


def root(x, p: float):
    """The p-th root, whose derivative at 0 is 0 as in torch."""
    zero = x == 0
    safe = jnp.where(zero, 1, x)
    return jnp.where(zero, 0, lax.sqrt(safe) if p == 2 else lax.pow(safe, x.dtype.type(1 / p)))


def length(x, p: float):
    """The p-norm over the last axis."""
    size = absolute(x)
    if p == 0:
        return (x != 0).sum(-1).astype(x.dtype)
    if p == 1:
        return size.sum(-1)
    if p == float("inf"):
        return size.max(-1, initial=0)
    if p == 2:
        return root(jnp.square(x).sum(-1), p)
    positive = size > 0
    terms = jnp.where(positive, lax.pow(jnp.where(positive, size, 1), x.dtype.type(p)), 0)
    return root(terms.sum(-1), p)


@lowers(aten._cdist_forward)
def cdist(x1, x2, p, compute_mode):
    return length(x1[..., :, None, :] - x2[..., None, :, :], p)


@lowers(aten._euclidean_dist)
def euclidean_dist(x1, x2):
    """From products of matrices, as torch does for many rows."""
    norms = jnp.square(x1).sum(-1)[..., :, None] + jnp.square(x2).sum(-1)[..., None, :]
    squares = norms - 2 * jnp.einsum("...pm,...rm->...pr", x1, x2)
    return root(jnp.maximum(squares, 0), 2)


@lowers(aten._pdist_forward)
def pdist(self, p):
    first, second = np.triu_indices(self.shape[0], 1)
    return length(self[first] - self[second], p)
