"""Reductions over windows, and scatters to an element that each window selects."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.stablehlo.core.monoid import identity, monoid
from anyjax.stablehlo.core.schema import lowers
from anyjax.stablehlo.core.static_values import sizes
from anyjax.stablehlo.ops.reduce import differentiable, elementwise, pairwise, promote, with_initial
from anyjax.stablehlo.ops.scatter import apply_windows

CUMULATIVE = {
    lax.add: lax.cumsum, lax.mul: lax.cumprod, lax.max: lax.cummax, lax.min: lax.cummin
}  # fmt: skip


@lowers("stablehlo.reduce_window")
def reduce_window(
    result, inputs, init_values, size, strides, base_dilations, window_dilations, padding, body, /
):
    inputs, init_values = promote(body, inputs, init_values)
    rank = inputs[0].ndim
    lists = [tuple(x or [1] * rank) for x in (size, strides, base_dilations, window_dilations)]
    moves = (*lists[:2], pairs(padding, rank), *lists[2:])
    single = monoid(body.region) if len(inputs) == 1 else None
    if (axis := cumulative_axis(inputs[0].shape, *moves)) is not None:
        return cumulative(single, body, inputs, init_values, *axis)
    return windows(single, body, inputs, init_values, moves)


def windows(single, body, inputs, init_values, moves):
    """Reduces windows; JAX has derivatives of sums, maxima and minima only."""
    if single is None:
        reduce = lambda xs: lax.reduce_window(tuple(xs), tuple(init_values), pairwise(body), *moves)
        starts = init_values
    else:
        starts = [identity(single, inputs[0].dtype)]
        reduce = lambda xs: [lax.reduce_window(xs[0], starts[0], single, *moves)]
    if single in (lax.add, lax.max, lax.min):
        out = reduce(inputs)
    else:
        out = differentiable(reduce, lambda xs: reduce_slices(body, xs, starts, *moves), inputs)
    return out if single is None else with_initial(single, out[0], init_values[0], starts[0])


def pairs(padding, rank):
    """Returns (low, high) for each axis."""
    return [(0, 0)] * rank if padding is None else [sizes(p) for p in padding]


def cumulative_axis(shape, size, strides, padding, base, dilations):
    """Returns (axis, reverse) if the windows are those of a cumulative reduction, else None."""
    moving = [i for i, n in enumerate(size) if n != 1 or padding[i] != (0, 0)]
    if len(moving) != 1 or {*strides, *base, *dilations} != {1}:
        return None
    (axis,) = moving
    n = shape[axis]
    if size[axis] != n or padding[axis] not in ((n - 1, 0), (0, n - 1)):
        return None
    return axis, padding[axis][0] == 0


def cumulative(single, body, inputs, init_values, axis, reverse):
    if single in CUMULATIVE:
        out = CUMULATIVE[single](inputs[0], axis, reverse)
        return with_initial(single, out, init_values[0], identity(single, out.dtype))
    combine = elementwise(body)
    function = lambda xs, ys: tuple(combine(*xs, *ys))
    out = lax.associative_scan(function, tuple(inputs), reverse=reverse, axis=axis)
    return combine(*(jnp.full(x.shape, init) for x, init in zip(out, init_values)), *out)


def reduce_slices(body, inputs, init_values, size, strides, padding, base, dilations):
    """Reduces strided slices of the padded arrays, one for each element of the window."""
    combine = elementwise(body)
    config = [(*low_high, inside - 1) for low_high, inside in zip(padding, base)]
    wide = [lax.pad(x, jnp.asarray(init), config) for x, init in zip(inputs, init_values)]
    reach = [(n - 1) * d + 1 for n, d in zip(size, dilations)]
    counts = [(n - r) // s + 1 for n, r, s in zip(wide[0].shape, reach, strides)]
    out = [jnp.full(counts, init) for init in init_values]
    for place in itertools.product(*map(range, size)):
        first = [p * d for p, d in zip(place, dilations)]
        last = [f + (c - 1) * s + 1 for f, c, s in zip(first, counts, strides)]
        out = combine(*out, *(lax.slice(x, first, last, strides) for x in wide))
    return out


@lowers("stablehlo.select_and_scatter")
def select_and_scatter(
    result, operand, source, init_value, size, strides, padding, select, scatter, /
):
    """Differentiates JAX's maximum (or minimum) over windows; other choices are searched for."""
    function = PICKS.get(direction(select.region))
    sizes, steps = size or [1] * operand.ndim, strides or [1] * operand.ndim
    edges = pairs(padding, operand.ndim)
    floats = jnp.issubdtype(operand.dtype, jnp.floating)
    if function is None or monoid(scatter.region) is not lax.add or not floats:
        return select_by_place(operand, source, init_value, sizes, steps, edges, select, scatter)
    start = identity(function, operand.dtype)
    pool = lambda x: lax.reduce_window(x, start, function, sizes, steps, edges)
    (grad,) = jax.vjp(pool, operand)[1](source)
    return with_initial(lax.add, grad, init_value, identity(lax.add, grad.dtype))


PICKS = {"GE": lax.max, "LE": lax.min}  # of equal values the first, as JAX has it


def direction(region):
    """Returns the direction in which a region compares its inputs, None if it does more."""
    (op,) = region.operations if len(region.operations) == 1 else (None,)
    if op is None or op.name != "stablehlo.compare":
        return None
    return op.arguments[2][1] if [x for _, x in op.arguments[:2]] == region.inputs else None


def select_by_place(operand, source, init_value, sizes, strides, padding, select, scatter):
    """Finds each window's choice by its place in the operand, then scatters to these places."""
    prefer = elementwise(select)
    config = [(*edge, 0) for edge in padding]
    places = lax.iota(np.int32, operand.size).reshape(operand.shape)
    values, places = lax.pad(operand, operand.dtype.type(0), config), lax.pad(places, -1, config)
    best, at = None, jnp.full(source.shape, -1)
    for first in itertools.product(*map(range, sizes)):
        last = [f + (c - 1) * s + 1 for f, c, s in zip(first, source.shape, strides)]
        value, place = (lax.slice(x, first, last, strides) for x in (values, places))
        best = value if best is None else best
        keep = (at >= 0) & (prefer(best, value)[0] | (place < 0))
        best, at = jnp.where(keep, best, value), jnp.where(keep, at, place)
    start = jnp.full(operand.shape, init_value)
    return apply_windows(
        scatter, [start], at.reshape(-1, 1), [source.reshape(-1, 1)], unique=False
    )[0]
