"""Floats as 8 to 32 bit integers of a range, and back."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from tojax.tensorflow.core.schema import lowers


def away(x):
    """Rounded, halves away from zero."""
    return jnp.sign(x) * jnp.floor(jnp.abs(x) + 0.5)


def along(x, ends, axis):
    """The ends of a range, one of them for each entry of an axis."""
    if axis == -1:
        return [end.reshape(()) for end in ends]
    shape = [-1 if i == axis else 1 for i in range(x.ndim)]
    return [end.reshape(shape) for end in ends]


def limits(dtype):
    """What a kind of integer can hold, as floats, and half of it for signed ones."""
    info = np.iinfo(dtype)
    half = (float(info.max) - float(info.min) + 1) / 2 if info.min else 0.0
    return float(info.min), float(info.max), half


def first_step(low, high, dtype):
    """MIN_FIRST's steps for 1, as many as there are integers."""
    return np.float32(2.0 ** np.iinfo(dtype).bits - 1) / (high - low)


def first(x, low, count, dtype):
    """MIN_FIRST's integers from 0 on: TensorFlow rounds the two terms of signed ones apart."""
    if np.iinfo(dtype).min == 0:
        return away(x * count - low * count)
    return away(x * count) - away(low * count)


def scaled(low, high, least, most, even):
    """SCALED's range and its steps for 1; ``even`` takes the larger end on both sides."""
    if even:
        top = jnp.maximum(jnp.abs(low), jnp.abs(high))
        return (-top if least else low * 0), top, (most - least) / (2 if least else 1) / top
    largest = np.finfo(np.float32).max
    counts = [jnp.where(x * y > 0, x / y, largest) for x, y in ((least, low), (most, high))]
    count = jnp.minimum(*counts)
    return least / count, most / count, count


def widened(low, high, margin):
    """A range that holds 0 and is not empty."""
    room = jnp.maximum(1, jnp.maximum(jnp.abs(low), jnp.abs(high))) * np.float32(margin)
    low = jnp.minimum(low, 0)
    return low, jnp.maximum(0, jnp.maximum(high, low + room))


@lowers("QuantizeV2")
def quantize(
    input, min_range, max_range, T, mode, round_mode, narrow_range, axis, ensure_minimum_range
):
    low, high = widened(min_range, max_range, ensure_minimum_range)
    least, most, half = limits(T)
    count = high
    if mode == "SCALED":
        even = round_mode == "HALF_TO_EVEN" and not narrow_range
        least += narrow_range
        low, high, count = scaled(low, high, least, most, even)
    bottom, top, count = along(input, (low, high, count), axis)
    x = jnp.clip(input, bottom, top)
    if mode == "SCALED":
        found = (jnp.round if round_mode == "HALF_TO_EVEN" else away)(x * count)
    elif mode == "MIN_FIRST":
        found = first(x, bottom, first_step(bottom, top, T), T) + least
    else:
        found = away((x - bottom) * ((most - least) / (top - bottom)) - half)
    return jnp.clip(found, least, most).astype(T), low, high


@lowers("Dequantize")
def dequantize(input, min_range, max_range, mode, narrow_range, axis, dtype):
    least, most, half = limits(input.dtype)
    low, high = along(input, (min_range, max_range), axis)
    x = input.astype(np.float32)
    if mode == "SCALED":
        step = high / most
        found = x * (jnp.maximum(low / (least + narrow_range), step) if half else step)
    elif mode == "MIN_FIRST":
        count = first_step(low, high, input.dtype)
        found = jnp.where(low == high, low, away(low * count) / count + (x - least) / count)
    else:
        found = (x + np.float32(half)) * ((high - low) / (most - least)) + low
    return found.astype(dtype)
