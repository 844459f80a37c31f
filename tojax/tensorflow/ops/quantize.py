"""Fake quantization, and quantization to integers and back."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tojax.tensorflow.core.schema import lowers


def nudged(low, high, num_bits, narrow_range):
    """The range moved so that 0 is one of its steps: (low, high, step, steps for 1)."""
    first, last = np.float32(narrow_range), np.float32(2**num_bits - 1)
    step, count = (high - low) / (last - first), (last - first) / (high - low)
    zero = first - low / step
    zero = jnp.where(zero < first, first, jnp.where(zero > last, last, jnp.floor(zero + 0.5)))
    return (first - zero) * step, (last - zero) * step, step, count


@jax.custom_jvp
def faked(x, low, high, bounds):
    """Rounded to a step; ``bounds`` are nudged, (low, high) have the gradient of what lies out."""
    least, most, step, count = bounds
    zero = jnp.floor(-least * count + 0.5)
    rounded = jnp.floor((jnp.clip(x, least, most) - least) * count - zero + 0.5) * step
    return jnp.where((low == 0) & (high == 0), 0, rounded)


@faked.defjvp
def _faked_jvp(primals, tangents):
    x, low, high, (least, most, *_) = primals
    dx, d_low, d_high, _ = tangents
    empty = (low == 0) & (high == 0)
    outside = jnp.where(x < least, d_low, jnp.where(x > most, d_high, 0))
    inside = (x >= least) & (x <= most) | empty
    return faked(*primals), jnp.where(inside, dx, jnp.where(empty, 0, outside))


def fake(x, low, high, num_bits, narrow_range):
    bounds = lax.stop_gradient(nudged(low, high, num_bits, narrow_range))
    return faked(x, low, high, bounds)


@lowers("FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsPerChannel")
def fake_quant(inputs, min, max, num_bits, narrow_range):
    return fake(inputs, min, max, num_bits, narrow_range)


@lowers("FakeQuantWithMinMaxArgs")
def fake_quant_args(inputs, min, max, num_bits, narrow_range):
    return fake(inputs, np.float32(min), np.float32(max), num_bits, narrow_range)


@lowers("FakeQuantWithMinMaxVarsGradient", "FakeQuantWithMinMaxVarsPerChannelGradient")
def fake_quant_gradient(gradients, inputs, min, max, num_bits, narrow_range):
    run = lambda *xs: fake(*xs, num_bits, narrow_range)
    return jax.vjp(run, inputs, jnp.asarray(min), jnp.asarray(max))[1](gradients)


@lowers("FakeQuantWithMinMaxArgsGradient")
def fake_quant_args_gradient(gradients, inputs, min, max, num_bits, narrow_range):
    run = lambda x: fake_quant_args(x, min, max, num_bits, narrow_range)
    return jax.vjp(run, inputs)[1](gradients)[0]


def along(values, x, axis):
    """One value for all of x, or one for each slice along an axis."""
    return values if axis == -1 else values.reshape(-1, *[1] * (x.ndim - axis - 1))


def ends(x, low, high, range_given, axis):
    """The range that is given, or the one of the values."""
    if range_given:
        return along(low, x, axis), along(high, x, axis)
    axes = [i for i in range(x.ndim) if i != axis] if axis != -1 else None
    found = [f(lax.stop_gradient(x), axes, keepdims=axis != -1) for f in (jnp.min, jnp.max)]
    return found[0], found[1]


def scaled_range(low, high, num_bits, signed, narrow):
    """(low, high, integers for 1, 1 for integers): the scale keeps 0 where it is."""
    least = narrow - 2.0 ** (num_bits - 1) if signed else 0.0
    most = 2.0 ** (num_bits - 1) - 1 if signed else 2.0**num_bits - 1
    huge = np.array(jnp.finfo(low.dtype).max, low.dtype)
    from_low = jnp.where(least * low > 0, least / low, huge)
    from_high = jnp.where(most * high > 0, most / high, huge)
    lower = from_low < from_high
    step = jnp.where(lower, low / jnp.where(least == 0, 1, least), high / most)
    bounds = jnp.where(lower, low, least * step), jnp.where(lower, most * step, high)
    return *bounds, jnp.where(lower, from_low, from_high), step


def there_and_back(x, low, high, signed, num_bits, range_given, round_mode, narrow, axis):
    low, high = ends(x, low, high, range_given, axis)
    low, high, scale, step = scaled_range(low, high, num_bits, signed, narrow)
    inside = jnp.maximum(jnp.minimum(x, high), low) * scale if range_given else x * scale
    rounded = jnp.floor(inside + 0.5) if round_mode == "HALF_UP" else jnp.round(inside)
    return rounded * step


@jax.custom_jvp
def straight(x, out):
    """``out`` with the gradient of ``x``."""
    return out


straight.defjvp(lambda primals, tangents: (primals[1], tangents[0]))


@lowers("QuantizeAndDequantizeV2")
def quantize_and_dequantize(
    input, input_min, input_max, signed_input, num_bits, range_given, round_mode, narrow_range,
    axis,
):  # fmt: skip
    """The gradient passes through, also where a value is clipped."""
    how = signed_input, num_bits, range_given, round_mode, narrow_range, axis
    return straight(input, lax.stop_gradient(there_and_back(input, input_min, input_max, *how)))


@lowers("QuantizeAndDequantizeV3")
def quantize_and_dequantize_v3(
    input, input_min, input_max, num_bits, signed_input, range_given, narrow_range, axis
):
    num_bits = jnp.asarray(num_bits, input.dtype)
    how = signed_input, num_bits, range_given, "HALF_TO_EVEN", narrow_range, axis
    return straight(input, lax.stop_gradient(there_and_back(input, input_min, input_max, *how)))


@lowers("QuantizeAndDequantizeV4")
def quantize_and_dequantize_v4(
    input, input_min, input_max, signed_input, num_bits, range_given, round_mode, narrow_range,
    axis,
):  # fmt: skip
    """The gradient of what is clipped is 0, and so is that of the ends."""
    how = signed_input, num_bits, range_given, round_mode, narrow_range, axis
    out = lax.stop_gradient(there_and_back(input, input_min, input_max, *how))
    return straight(inside(input, input_min, input_max, axis), out)


def inside(x, low, high, axis):
    """x with a gradient only where it lies in the range."""
    low, high = along(low, x, axis), along(high, x, axis)
    return jnp.where((x >= low) & (x <= high), x, lax.stop_gradient(x))


@lowers("QuantizeAndDequantizeV4Grad")
def quantize_and_dequantize_v4_grad(gradients, input, input_min, input_max, axis):
    back = jax.vjp(lambda x: inside(x, input_min, input_max, axis), input)[1](gradients)
    return *back, jnp.zeros_like(input_min), jnp.zeros_like(input_max)


# Floats as 8 to 32 bit integers of a range, and back.


def away(x):
    """Rounded, halves away from zero."""
    return jnp.sign(x) * jnp.floor(jnp.abs(x) + 0.5)


def ends_along(x, ends, axis):
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
    bottom, top, count = ends_along(input, (low, high, count), axis)
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
    low, high = ends_along(input, (min_range, max_range), axis)
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
