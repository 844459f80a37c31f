"""Reductions over axes."""

from __future__ import annotations

from jax import lax

from tojax.stablehlo.core.monoid import monoid
from tojax.stablehlo.core.schema import lowers


@lowers("stablehlo.reduce")
def reduce(result, inputs, init_values, dimensions, body):
    if len(inputs) == 1 and (single := monoid(body.region)) is not None:
        return lax.reduce(inputs[0], init_values[0], single, dimensions)
    several = lambda xs, ys: tuple(body(*xs, *ys))
    return lax.reduce(tuple(inputs), tuple(init_values), several, dimensions)
