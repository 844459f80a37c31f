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


def scaled(low, high, least, most, even):
    """SCALED's range and its steps for 1; ``even`` takes the larger end on both sides."""
    if even:
        top = jnp.maximum(jnp.abs(low), jnp.abs(high))
        return (-top if least else low * 0), top, (most - least) / (2 if least else 1) / top
    largest = np.finfo(np.float32).max
    counts = [jnp.where(x * y > 0, x / y, largest) for x, y in ((least, low), (most, high))]
    count = jnp.minimum(*counts)
    return least / count, most / count, count


@lowers("QuantizeV2")
def quantize(input, min_range, max_range, T, mode, round_mode, narrow_range, axis,
             ensure_minimum_range):  # fmt: skip
    """The range is widened to hold 0 and to not be empty; SCALED makes it symmetric."""
    low, high = jnp.minimum(min_range, 0), max_range
    room = jnp.maximum(1, jnp.maximum(jnp.abs(min_range), jnp.abs(max_range)))
    high = jnp.maximum(0, jnp.maximum(high, low + room * np.float32(ensure_minimum_range)))
    least, most, half = limits(T)
    count = high
    if mode == "SCALED":
        even = round_mode == "HALF_TO_EVEN" and not narrow_range
        low, high, count = scaled(low, high, least + narrow_range, most, even)
    least += narrow_range and mode == "SCALED"
    bottom, top, count = along(input, (low, high, count), axis)
    x = jnp.clip(input, bottom, top)
    if mode == "SCALED":
        found = (jnp.round if round_mode == "HALF_TO_EVEN" else away)(x * count)
    elif mode == "MIN_FIRST":
        count = first_step(bottom, top, T)
        joint = T == np.uint8  # TensorFlow rounds the others' two terms apart
        found = (
            away(x * count - bottom * count) if joint else away(x * count) - away(bottom * count)
        )
        found += least
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
