"""Grayscale dilation: the maximum of the sums of a window and a filter."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
from jax import lax

from tojax.tensorflow.core.schema import lowers


def lowest(dtype):
    info = jnp.finfo if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo
    return info(dtype).min


@lowers("Dilation2D")
def dilation2d(input, filter, strides, rates, padding):
    """One element of the filter after another; the first of equal sums has the gradient."""
    height, width, _ = filter.shape
    strides, rates = strides[1:3], rates[1:3]
    reach = [(k - 1) * r + 1 for k, r in zip((height, width), rates)]
    pads = lax.padtype_to_pads(input.shape[1:3], reach, strides, padding)
    least = jnp.asarray(lowest(input.dtype), input.dtype)
    input = lax.pad(input, least, [(0, 0, 0), *((*p, 0) for p in pads), (0, 0, 0)])
    ends = [(n - k) // s * s + 1 for n, k, s in zip(input.shape[1:3], reach, strides)]
    found = None
    for y, x in itertools.product(range(height), range(width)):
        at = y * rates[0], x * rates[1]
        taken = input[:, at[0] : at[0] + ends[0] : strides[0], at[1] : at[1] + ends[1] : strides[1]]
        # what is padding stays the least there is, whatever the filter says
        taken = jnp.where(taken == least, least, taken + filter[y, x])
        found = taken if found is None else jnp.where(taken > found, taken, found)
    return found


@lowers("Dilation2DBackpropInput")
def of_input(input, filter, out_backprop, strides, rates, padding):
    run = lambda x: dilation2d(x, filter, strides, rates, padding)
    return jax.vjp(run, input)[1](out_backprop)[0]


@lowers("Dilation2DBackpropFilter")
def of_filter(input, filter, out_backprop, strides, rates, padding):
    run = lambda x: dilation2d(input, x, strides, rates, padding)
    return jax.vjp(run, filter)[1](out_backprop)[0]
