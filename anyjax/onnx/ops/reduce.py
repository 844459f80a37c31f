"""Reductions, places of extremes, sums along an axis."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from anyjax.dtypes import canonical, is_float
from anyjax.numerics.division import mean
from anyjax.numerics.pooling import lowest
from anyjax.onnx.core.schema import Static, lowers, update


def _norm(x, axis, keepdims):
    """Returns the Euclidean norm; its gradient at zero is zero."""
    if not is_float(x.dtype):  # whose squares may not fit
        x = x.astype(jnp.float32)
    squares = jnp.sum(x * x, axis, keepdims=keepdims)
    positive = squares > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, squares, 1)), 0)


def _log_sum_exp(x, axis, keepdims):
    if not is_float(x.dtype):
        return jnp.log(jnp.sum(jnp.exp(x), axis, keepdims=keepdims)).astype(x.dtype)
    return jax.nn.logsumexp(x, axis, keepdims=keepdims)


def _max(x, axis, keepdims):
    if x.dtype == bool:
        return jnp.any(x, axis, keepdims=keepdims)
    return jnp.max(x, axis, keepdims=keepdims, initial=lowest(x.dtype))


def _min(x, axis, keepdims):
    if x.dtype == bool:
        return jnp.all(x, axis, keepdims=keepdims)
    highest = jnp.inf if is_float(x.dtype) else jnp.iinfo(x.dtype).max
    return jnp.min(x, axis, keepdims=keepdims, initial=highest)


REDUCTIONS: dict[str, Callable] = {
    "L1": lambda x, axis, keepdims: jnp.sum(jnp.abs(x), axis, keepdims=keepdims),
    "L2": _norm,
    "LogSum": lambda x, axis, keepdims: jnp.log(
        jnp.sum(x if is_float(x.dtype) else x.astype(jnp.float32), axis, keepdims=keepdims)
    ),
    "LogSumExp": _log_sum_exp,
    "Max": _max,
    "Mean": mean,
    "Min": _min,
    "Prod": lambda x, axis, keepdims: jnp.prod(x, axis, keepdims=keepdims, dtype=x.dtype),
    "Sum": lambda x, axis, keepdims: jnp.sum(x, axis, keepdims=keepdims, dtype=x.dtype),
    "SumSquare": lambda x, axis, keepdims: jnp.sum(x * x, axis, keepdims=keepdims, dtype=x.dtype),
}


def _reduction(function: Callable) -> Callable:
    def lowering(data, axes: Static, keepdims, noop_with_empty_axes):
        empty = axes is None or not axes.size
        axis = None if empty else tuple(map(int, axes.ravel()))
        if empty and noop_with_empty_axes:
            axis = ()
        return function(data, axis, bool(keepdims)).astype(data.dtype)

    return lowering


update({f"Reduce{name}": _reduction(function) for name, function in REDUCTIONS.items()})


def _place(choose: Callable) -> Callable:
    def lowering(data, axis, keepdims, select_last_index):
        turned = jnp.flip(data, axis) if select_last_index else data
        places = choose(turned, axis, keepdims=bool(keepdims))
        places = data.shape[axis] - 1 - places if select_last_index else places
        return places.astype(canonical("int64"))

    return lowering


update({"ArgMax": _place(jnp.argmax), "ArgMin": _place(jnp.argmin)})


def _cumulative(function: Callable, neutral: int) -> Callable:
    def lowering(x, axis: Static, exclusive, reverse):
        axis = int(axis.reshape(())) % x.ndim
        if exclusive:
            pads = [(0, 0, 0)] * x.ndim
            pads[axis] = (-1, 1, 0) if reverse else (1, -1, 0)
            x = jax.lax.pad(x, jnp.asarray(neutral, x.dtype), pads)
        return function(x, axis, reverse=bool(reverse))

    return lowering


update({"CumSum": _cumulative(jax.lax.cumsum, 0), "CumProd": _cumulative(jax.lax.cumprod, 1)})


@lowers("TopK")
def top_k(X, K: Static, axis, largest, sorted):
    """Of equal elements the first comes first."""
    order = jnp.argsort(X, axis, stable=True, descending=bool(largest))
    places = jax.lax.slice_in_dim(order, 0, int(K.reshape(())), axis=axis)
    return jnp.take_along_axis(X, places, axis), places.astype(canonical("int64"))
