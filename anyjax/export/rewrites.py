"""Operators that ONNX exporters write wrongly or not at all, expressed by others."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable

import jax
import numpy as np
from jax import export, lax

from anyjax.jaxprs import JaxprEqn

MAX_PLACES = 64  # of a window: each is an operator of the program


def reduce(eqn: JaxprEqn, inputs: list[jax.Array]) -> list[jax.Array] | None:
    """Rewrites ``lax.reduce`` with one operator: reduces all elements, then adds the init value."""
    body = eqn.params["jaxpr"].eqns
    if len(inputs) != 2 or len(body) != 1 or body[0].primitive.name not in REDUCTIONS:
        return None
    over, pair = REDUCTIONS[body[0].primitive.name]
    x, first = inputs
    return [pair(over(x, tuple(eqn.params["dimensions"])), first)]


REDUCTIONS: dict[str, tuple[Callable, Callable]] = {
    "max": (lax.reduce_max, lax.max),
    "min": (lax.reduce_min, lax.min),
    "add": (lax.reduce_sum, lax.add),
    "mul": (lax.reduce_prod, lax.mul),
}


def pooled(pair: Callable, filler: Callable) -> Callable:
    """Rewrites pooling over any axes as slices of the padded array, one for each window place."""

    def rewrite(eqn: JaxprEqn, inputs: list[jax.Array]) -> list[jax.Array] | None:
        get: Callable = eqn.params.get
        window, strides = get("window_dimensions"), get("window_strides")
        dilation, base_dilation = get("window_dilation"), get("base_dilation")
        (x,) = inputs
        if any(map(export.is_symbolic_dim, x.shape)):
            return _flat(eqn, x)
        if math.prod(window) > MAX_PLACES or set(base_dilation or (1,)) != {1}:
            return None
        margins = [(low, high, 0) for low, high in get("padding")]
        x = lax.pad(x, np.asarray(filler(x.dtype), x.dtype), margins)
        pieces = []
        for place in itertools.product(*map(range, window)):
            start = [p * d for p, d in zip(place, dilation)]
            reach = [(w - 1) * d for w, d in zip(window, dilation)]
            stop = [n - r + s for n, r, s in zip(x.shape, reach, start)]
            pieces.append(lax.slice(x, start, stop, strides))
        return [functools.reduce(pair, pieces)]

    return rewrite


def _flat(eqn: JaxprEqn, x: jax.Array) -> list[jax.Array] | None:
    """Pools with the axes outside of the window merged into one, for symbolic sizes."""
    sizes, steps, margins = (
        eqn.params[k] for k in ("window_dimensions", "window_strides", "padding")
    )
    # a window of size one still pools if it has strides or padding
    is_pooled = lambda i: sizes[i] > 1 or steps[i] > 1 or any(margins[i])
    pooled_axes = [i for i in range(x.ndim) if is_pooled(i)]
    batch_axes = [i for i in range(x.ndim) if i not in pooled_axes]
    order = (*batch_axes, *pooled_axes)
    if len(batch_axes) < 2 or len(pooled_axes) > 2:
        return None
    transposed = lax.transpose(x, order)
    batch_shape = transposed.shape[: len(batch_axes)]
    pooled_shape = transposed.shape[len(batch_axes) :]
    flat = lax.reshape(transposed, (math.prod(batch_shape), *pooled_shape))
    pick = lambda v, of_batch: (of_batch, *(v[i] for i in pooled_axes))
    params = {
        k: pick(v, (0, 0) if k == "padding" else 1) if isinstance(v, tuple) else v
        for k, v in eqn.params.items()
    }
    out = eqn.primitive.bind(flat, **params)
    out = lax.reshape(out, (*batch_shape, *out.shape[1:]))
    return [lax.transpose(out, tuple(order.index(i) for i in range(x.ndim)))]


def _lowest(dtype: np.dtype) -> float:
    return -np.inf if jax.numpy.issubdtype(dtype, np.floating) else np.iinfo(dtype).min


# by primitive: (eqn, inputs) -> outputs, or None to keep the operator
REWRITES: dict[str, Callable] = {
    "reduce": reduce,
    "reduce_window_max": pooled(lax.max, _lowest),
    "reduce_window_sum": pooled(lax.add, lambda dtype: 0),
}
