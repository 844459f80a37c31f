"""Operators that ONNX exporters write wrongly or not at all, in others that they know."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import export, lax

MOST = 64  # places in a window: each one is an operator of the program


def reduce(eqn: Any, inputs: list[Any]) -> list[Any] | None:
    """``lax.reduce`` by one operator: that of all elements, and then of it and the first value."""
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
    """Windows as slices of the padded array, one for each place: pooling over any axes."""

    def rewrite(eqn: Any, inputs: list[Any]) -> list[Any] | None:
        get = eqn.params.get
        window, strides = get("window_dimensions"), get("window_strides")
        apart, inside = get("window_dilation"), get("base_dilation")
        (x,) = inputs
        if any(map(export.is_symbolic_dim, x.shape)):
            return _flat(eqn, x)
        if math.prod(window) > MOST or set(inside or (1,)) != {1}:
            return None
        margins = [(low, high, 0) for low, high in get("padding")]
        x = lax.pad(x, np.asarray(filler(x.dtype), x.dtype), margins)
        total = None
        for place in itertools.product(*map(range, window)):
            start = [p * d for p, d in zip(place, apart)]
            reach = [(w - 1) * d for w, d in zip(window, apart)]
            stop = [n - r + s for n, r, s in zip(x.shape, reach, start)]
            here = lax.slice(x, start, stop, strides)
            total = here if total is None else pair(total, here)
        return [total]

    return rewrite


def _flat(eqn: Any, x: Any) -> list[Any] | None:
    """The same window over an array whose other axes are one, where sizes are not known."""
    sizes, steps, margins = (
        eqn.params[k] for k in ("window_dimensions", "window_strides", "padding")
    )
    # those that the window changes: it may be one wide, and leave out every other place
    changed = lambda i: sizes[i] > 1 or steps[i] > 1 or any(margins[i])
    wide = [i for i in range(x.ndim) if changed(i)]
    rest = [i for i in range(x.ndim) if i not in wide]
    order = (*rest, *wide)
    if len(rest) < 2 or len(wide) > 2:
        return None
    turned = lax.transpose(x, order)
    others = turned.shape[: len(rest)]
    flat = lax.reshape(turned, (math.prod(others), *turned.shape[len(rest) :]))
    pick = lambda v, one: (one, *(v[i] for i in wide))
    params = {
        k: pick(v, (0, 0) if k == "padding" else 1) if isinstance(v, tuple) else v
        for k, v in eqn.params.items()
    }
    out = eqn.primitive.bind(flat, **params)
    out = lax.reshape(out, (*others, *out.shape[1:]))
    return [lax.transpose(out, tuple(order.index(i) for i in range(x.ndim)))]


def _lowest(dtype: Any) -> Any:
    return -np.inf if jax.numpy.issubdtype(dtype, np.floating) else np.iinfo(dtype).min


# primitive -> (eqn, inputs) -> its outputs, None where it is to stay
REWRITES: dict[str, Callable] = {
    "reduce": reduce,
    "reduce_window_max": pooled(lax.max, _lowest),
    "reduce_window_sum": pooled(lax.add, lambda dtype: 0),
}
