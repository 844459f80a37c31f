"""Products of rows that are sorted into groups, each with a matrix of its own, for few rows.

XLA's compilers of TPUs and GPUs want the matrices in one order in memory: others, such as those of
experts that torch transposes, they copy first, all of them in each call, and those that a mesh
divides by group are gathered.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from anyjax.numerics.replicated import mesh_of

MOST = 1024  # rows times bytes of a number: products with all matrices take as long as reading them
LEAST = 2**20  # bytes of matrices: a copy of fewer is not worth a program of its own
SLICES = 32  # rows, for each of which its own matrix is read


def by_group(ragged: Callable, lhs, rhs, sizes, dtype=None) -> jax.Array:
    """Returns ``lax.ragged_dot(lhs, rhs, sizes)`` without a copy of ``rhs``, where rows are few.

    Every row is multiplied by every matrix, which is read once, where that is no more work than to
    read them; by its own alone, where rows are far fewer than matrices and no mesh divides these.

    Args:
      ragged: the function itself, for more rows and other platforms.
      lhs: [rows, features].
      rhs: [groups, features, results].
      sizes: [groups], how many rows each group has; what is beyond them gives zeros.
      dtype: of the result.

    Example:
      >>> x, w = jnp.ones((3, 2)), jnp.stack([jnp.ones((2, 2)), jnp.zeros((2, 2))])
      >>> by_group(lax.ragged_dot, x, w, jnp.array([2, 1])).tolist()
      [[2.0, 2.0], [2.0, 2.0], [0.0, 0.0]]
    """
    rows, groups = lhs.shape[0], rhs.shape[0]
    size = rhs.dtype.itemsize
    if not isinstance(rows, int) or rows * size > MOST or rhs.size * size < LEAST:
        return ragged(lhs, rhs, sizes)
    few = rows <= SLICES and 2 * rows <= groups and mesh_of(lhs, rhs) is None
    spreads = rhs.shape[1] <= rhs.shape[2]
    tpu, cuda = (by_own, by_own) if few else (by_spread if spreads else by_all, by_all)
    tpu, cuda = (functools.partial(run, dtype=dtype) for run in (tpu, cuda))
    return lax.platform_dependent(lhs, rhs, sizes, tpu=tpu, cuda=cuda, default=ragged)


def by_all(lhs, rhs, sizes, dtype=None) -> jax.Array:
    """Returns the products of rows by all matrices, from which those of their own are chosen."""
    every = jnp.broadcast_to(lhs, (rhs.shape[0], *lhs.shape))
    dims = ((2,), (1,)), ((0,), (0,))
    out = lax.dot_general(every, rhs, dims, preferred_element_type=dtype)
    return jnp.where(_members(lhs, sizes).T[:, :, None], out, 0).sum(0, dtype=out.dtype)


def by_spread(lhs, rhs, sizes, dtype=None) -> jax.Array:
    """Returns one product, over groups and features, of rows that are zero in other groups, whose
    matrices have to be finite.
    """
    spread = jnp.where(_members(lhs, sizes)[:, :, None], lhs[:, None], 0)
    return jnp.einsum("sgk,gkn->sn", spread, rhs, preferred_element_type=dtype)


def by_own(lhs, rhs, sizes, dtype=None) -> jax.Array:
    """Returns the product of each row by its group's matrix, row by row."""
    members = _members(lhs, sizes)
    groups = members.argmax(1)
    product = lambda x, i: jnp.matmul(
        x, lax.dynamic_index_in_dim(rhs, i, keepdims=False), preferred_element_type=dtype
    )
    out = jnp.stack([product(lhs[i], groups[i]) for i in range(lhs.shape[0])])
    return jnp.where(members.any(1, keepdims=True), out, 0)


def _members(lhs, sizes) -> jax.Array:
    """Returns which group each row is of, [rows, groups]."""
    ends = jnp.cumsum(sizes)
    rows = lax.broadcasted_iota(ends.dtype, (lhs.shape[0], 1), 0)
    return (rows < ends) & (rows >= ends - sizes)
