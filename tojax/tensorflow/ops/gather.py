"""Reading at positions.

TensorFlow raises for a position that an array does not have, or gives 0, as its kernels go. Here
floats are NaN, negative positions included, and integers are those of the nearest position.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tojax.tensorflow.core.known import as_jax, is_known
from tojax.tensorflow.core.schema import Known, Static, lowers


def read(params, index: tuple, missing=None):
    """``params[index]``; of each index it is asked whether it is known to lie inside."""
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
    """``indices`` along an axis; their axes replace it."""
    if not indices.ndim and _inside(indices, params.shape[axis]):
        return lax.index_in_dim(params, int(indices), axis, keepdims=False)
    return read(params, (*[slice(None)] * axis, indices))


def batched(params, indices, axis: int, batch_dims: int):
    """The first axes of both belong together."""
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


@lowers("InTopK")
def in_top_k(predictions, targets, k):
    """No where a prediction of the row is not finite, or the target is none of its classes."""
    count = predictions.shape[-1]
    safe = jnp.clip(targets, 0, count - 1)[:, None]
    mine = jnp.take_along_axis(predictions, safe, -1, mode="promise_in_bounds")
    sure = jnp.all(jnp.isfinite(predictions), -1) & (targets >= 0) & (targets < count)
    return sure & (jnp.sum(predictions > mine, -1, dtype="int32") < k)


@lowers("InTopKV2")
def in_top_k_v2(predictions, targets, k):
    return in_top_k(predictions, targets, k)
