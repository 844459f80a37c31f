"""Windows that move over an array."""

from __future__ import annotations

import jax
import numpy as np
from jax import lax

from tojax.errors import Unsupported
from tojax.stablehlo.core.monoid import monoid
from tojax.stablehlo.core.schema import lowers


@lowers("stablehlo.reduce_window")
def reduce_window(
    result, inputs, init_values, size, strides, base_dilations, window_dilations, padding, body, /
):
    single = monoid(body.region) if len(inputs) == 1 else None
    function = single or (lambda xs, ys: tuple(body(*xs, *ys)))
    ones = [1] * inputs[0].ndim
    return lax.reduce_window(
        inputs[0] if single else tuple(inputs),
        init_values[0] if single else tuple(init_values),
        function,
        size,
        strides or ones,
        pairs(padding, inputs[0].ndim),
        base_dilations or ones,
        window_dilations or ones,
    )


def pairs(padding, rank):
    """(low, high) for each axis."""
    return [(0, 0)] * rank if padding is None else [tuple(map(int, p)) for p in np.asarray(padding)]


@lowers("stablehlo.select_and_scatter")
def select_and_scatter(
    result, operand, source, init_value, size, strides, padding, select, scatter, /
):
    """The gradient of a maximum (or minimum) over windows: that is how JAX has it, too."""
    kind = PICKS.get(direction(select.region))
    if kind is None or monoid(scatter.region) is not lax.add:
        raise Unsupported(
            "a select_and_scatter with computations of its own",
            why="JAX has the sum of what the largest or the smallest values of windows get",
            do="write it as one of these",
        )
    function, lowest = kind
    start = np.array(lowest(operand.dtype), operand.dtype)
    sizes, steps = size or [1] * operand.ndim, strides or [1] * operand.ndim
    pool = lambda x: lax.reduce_window(x, start, function, sizes, steps, pairs(padding, x.ndim))
    (found,) = jax.vjp(pool, operand)[1](source)
    return found + init_value


PICKS = {
    "GE": (lax.max, lambda dtype: -np.inf),
    "GT": (lax.max, lambda dtype: -np.inf),
    "LE": (lax.min, lambda dtype: np.inf),
    "LT": (lax.min, lambda dtype: np.inf),
}


def direction(region):
    """How a region compares its two inputs, None if it does anything else."""
    (op,) = region.operations if len(region.operations) == 1 else (None,)
    if op is None or op.name != "stablehlo.compare":
        return None
    return op.arguments[2][1] if [x for _, x in op.arguments[:2]] == region.inputs else None
