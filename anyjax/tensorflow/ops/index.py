"""Indices: reading at positions, and writing to them.

For a position outside of the array TensorFlow's kernels raise or give 0. Here, negative positions
included, floats are NaN, integers are those of the nearest position, and writes are dropped.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.numerics.scatter import multiply_at
from anyjax.stablehlo.core.static_values import as_jax, is_known, sizes
from anyjax.tensorflow.core.schema import Known, Static, lowers, table

OPTIONS = {"mode": "drop", "wrap_negative_indices": False}  # of writes


# Reading at positions.


def read(params, index: tuple, missing=None):
    """Returns ``params[index]``; known indices are checked to lie inside."""
    inside = all(isinstance(x, slice) or _inside(x, n) for x, n in zip(index, params.shape))
    index = tuple(x if isinstance(x, slice) else as_jax(x) for x in index)
    if inside:
        mode, missing = "promise_in_bounds", None
    elif missing is None and not jnp.issubdtype(params.dtype, jnp.inexact):
        mode = "clip"
    else:
        mode, missing = "fill", np.nan if missing is None else missing
    return params.at[index].get(mode=mode, fill_value=missing, wrap_negative_indices=False)


def _inside(index, size) -> bool:
    return is_known(index) and isinstance(size, int) and np.all((index >= 0) & (index < size))


def take(params, indices, axis: int = 0):
    """Takes ``indices`` along an axis; their axes replace it."""
    if not indices.ndim and _inside(indices, params.shape[axis]):
        return lax.index_in_dim(params, int(indices), axis, keepdims=False)
    return read(params, (*[slice(None)] * axis, indices))


def batched(params, indices, axis: int, batch_dims: int):
    """Takes along an axis; the first ``batch_dims`` axes of both are shared."""
    axis = axis % params.ndim
    batch_dims = batch_dims % indices.ndim if batch_dims < 0 else batch_dims
    if not batch_dims:
        return take(params, indices, axis)
    function = lambda x, i: take(x, i, axis - batch_dims)
    for _ in range(batch_dims):
        function = jax.vmap(function)
    return function(params, as_jax(indices))


@lowers("GatherV2")
def gather_v2(params, indices: Known, axis: Static, batch_dims):
    return batched(params, indices, axis.item(), batch_dims)


@lowers("Gather")
def gather(params, indices: Known):
    return take(params, indices)


@lowers("GatherNd")
def gather_nd(params, indices: Known, bad_indices_policy):
    """The last axis of the indices is a position in the first axes of ``params``."""
    index = tuple(indices[..., i] for i in range(indices.shape[-1]))
    if not index:
        return jnp.broadcast_to(params, (*indices.shape[:-1], *params.shape))
    return read(params, index, 0 if bad_indices_policy == "IGNORE" else None)


@lowers("UnravelIndex")
def unravel_index(indices, dims: Static):
    return jnp.stack(jnp.unravel_index(indices, [int(n) for n in dims]))


@lowers("InvertPermutation")
def invert_permutation(x):
    return jnp.zeros_like(x).at[x].set(lax.iota(x.dtype, x.size), unique_indices=True)


# Writing to positions.


def assign(x, at, values):
    return x.at[at].set(values, **OPTIONS)


def add(x, at, values):
    if x.dtype == bool:
        return x.at[at].max(values, **OPTIONS)
    return x.at[at].add(values, **OPTIONS)


def subtract(x, at, values):
    return x.at[at].subtract(values, **OPTIONS)


def multiply(x, at, values):
    return multiply_at(x, at, values, OPTIONS["mode"], OPTIONS["wrap_negative_indices"])


def divide(x, at, values):
    """Divides; integers are truncated."""
    return lax.div(x, multiply(jnp.ones_like(x), at, values))


def _extreme(name: str):
    @jax.custom_jvp
    def function(x, at, values):
        return getattr(x.at[at], name)(values, **OPTIONS)

    @function.defjvp
    def jvp(primals, tangents):
        """Shares the gradient among all elements equal to the result."""
        (x, at, values), (dx, _, dvalues) = primals, tangents
        out = function(x, at, values)
        hit_x, hit = (x == out).astype(x.dtype), (values == out[at]).astype(x.dtype)
        count = add(hit_x, at, hit)
        total = add(dx * hit_x, at, dvalues * hit)
        return out, total / jnp.where(count == 0, 1, count)

    return function


highest, lowest = _extreme("max"), _extreme("min")


def nd(write):
    """Makes a lowering that writes where the last axis of the indices says."""

    def lowering(tensor, indices, updates, bad_indices_policy, /):
        at = tuple(indices[..., i] for i in range(indices.shape[-1]))
        return write(tensor, at, updates)

    return lowering


table.update(
    {
        "TensorScatterUpdate": nd(assign),
        "TensorScatterAdd": nd(add),
        "TensorScatterSub": nd(subtract),
        "TensorScatterMax": nd(highest),
        "TensorScatterMin": nd(lowest),
        "ScatterNdNonAliasingAdd": nd(add),
        "InplaceUpdate": lambda x, i, v: assign(x, i % x.shape[0], v),
        "InplaceAdd": lambda x, i, v: add(x, i % x.shape[0], v),
        "InplaceSub": lambda x, i, v: subtract(x, i % x.shape[0], v),
    }
)


@lowers("ScatterNd")
def scatter_nd(indices, updates, shape: Static, bad_indices_policy):
    zeros = lax.full(sizes(shape), 0, updates.dtype)
    return nd(add)(zeros, indices, updates, bad_indices_policy)
