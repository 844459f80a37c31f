"""Quantization: in floats alone (fake), there and back at once, and to integers and back."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.tensorflow.core.schema import lowers


def per_axis(value, x, axis):
    """Shapes one number for all of x, or one for each slice along an axis, to broadcast."""
    return value.reshape(()) if axis == -1 else value.reshape(-1, *[1] * (x.ndim - axis - 1))


# Fake quantization.


def nudged(low, high, num_bits, narrow_range):
    """Moves the range so that 0 is one of its steps: (low, high, step, 1 / step)."""
    first, last = np.float32(narrow_range), np.float32(2**num_bits - 1)
    step, count = (high - low) / (last - first), (last - first) / (high - low)
    zero = first - low / step
    zero = jnp.where(zero < first, first, jnp.where(zero > last, last, jnp.floor(zero + 0.5)))
    return (first - zero) * step, (last - zero) * step, step, count


@jax.custom_jvp
def faked(x, low, high, bounds):
    """Rounds to a step of the nudged ``bounds``; (low, high) get the gradient of clipped values."""
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
def fake_quant(inputs, min, max, /, *how):
    return fake(inputs, min, max, *how)


@lowers("FakeQuantWithMinMaxArgs")
def fake_quant_args(inputs, /, min, max, *how):
    return fake(inputs, np.float32(min), np.float32(max), *how)


@lowers("FakeQuantWithMinMaxVarsGradient", "FakeQuantWithMinMaxVarsPerChannelGradient")
def fake_quant_gradient(gradients, inputs, min, max, /, *how):
    run = lambda *xs: fake(*xs, *how)
    return jax.vjp(run, inputs, jnp.asarray(min), jnp.asarray(max))[1](gradients)


@lowers("FakeQuantWithMinMaxArgsGradient")
def fake_quant_args_gradient(gradients, inputs, /, *how):
    return jax.vjp(lambda x: fake_quant_args(x, *how), inputs)[1](gradients)[0]


# Quantization and dequantization at once.


def range_of(x, low, high, range_given, axis):
    """Returns the range given, or that of the values."""
    if range_given:
        return per_axis(low, x, axis), per_axis(high, x, axis)
    axes = [i for i in range(x.ndim) if i != axis] if axis != -1 else None
    x, keepdims = lax.stop_gradient(x), axis != -1
    return jnp.min(x, axes, keepdims=keepdims), jnp.max(x, axes, keepdims=keepdims)


def scaled_range(low, high, num_bits, signed, narrow):
    """Returns (low, high, 1 / step, step) of a range whose steps meet 0."""
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
    low, high = range_of(x, low, high, range_given, axis)
    low, high, scale, step = scaled_range(low, high, num_bits, signed, narrow)
    scaled = jnp.maximum(jnp.minimum(x, high), low) * scale if range_given else x * scale
    rounded = jnp.floor(scaled + 0.5) if round_mode == "HALF_UP" else jnp.round(scaled)
    return rounded * step


@jax.custom_jvp
def straight(x, out):
    """Returns ``out`` with the gradient of ``x``."""
    return out


straight.defjvp(lambda primals, tangents: (primals[1], tangents[0]))


@lowers("QuantizeAndDequantizeV2")
def quantize_and_dequantize(input, input_min, input_max, /, *how):
    """The gradient passes through, also where a value is clipped."""
    return straight(input, lax.stop_gradient(there_and_back(input, input_min, input_max, *how)))


@lowers("QuantizeAndDequantizeV3")
def quantize_and_dequantize_v3(
    input, input_min, input_max, num_bits, signed_input, range_given, narrow_range, axis
):
    num_bits = jnp.asarray(num_bits, input.dtype)
    how = signed_input, num_bits, range_given, "HALF_TO_EVEN", narrow_range, axis
    return quantize_and_dequantize(input, input_min, input_max, *how)


@lowers("QuantizeAndDequantizeV4")
def quantize_and_dequantize_v4(input, input_min, input_max, /, *how_and_axis):
    """The gradient of clipped values is 0, and so is that of the ends."""
    out = lax.stop_gradient(there_and_back(input, input_min, input_max, *how_and_axis))
    return straight(stopped_outside(input, input_min, input_max, how_and_axis[-1]), out)


def stopped_outside(x, low, high, axis):
    """Returns x with a gradient only where it lies in the range."""
    low, high = per_axis(low, x, axis), per_axis(high, x, axis)
    return jnp.where((x >= low) & (x <= high), x, lax.stop_gradient(x))


@lowers("QuantizeAndDequantizeV4Grad")
def quantize_and_dequantize_v4_grad(gradients, input, input_min, input_max, axis):
    back = jax.vjp(lambda x: stopped_outside(x, input_min, input_max, axis), input)[1](gradients)
    return *back, jnp.zeros_like(input_min), jnp.zeros_like(input_max)


# Floats as 8 to 32 bit integers of a range, and back.


def away(x):
    """Rounds, halves away from zero."""
    return jnp.sign(x) * jnp.floor(jnp.abs(x) + 0.5)


def limits(dtype):
    """Returns the least and the largest integer, and for signed ones half of the range, or 0."""
    info = np.iinfo(dtype)
    half = (float(info.max) - float(info.min) + 1) / 2 if info.min else 0.0
    return float(info.min), float(info.max), half


def min_first_scale(low, high, dtype):
    """Returns MIN_FIRST's steps per 1, as many as there are integers."""
    return np.float32(2.0 ** np.iinfo(dtype).bits - 1) / (high - low)


def min_first(x, low, count):
    """Returns MIN_FIRST's integers from 0 on: both terms are rounded."""
    return away(x * count) - away(low * count)


def scaled_steps(low, high, least, most):
    """Returns SCALED's range and its steps per 1; oneDNN's kernel, which TensorFlow takes on some
    processors, has another where halves go to even.
    """
    largest = np.finfo(np.float32).max
    counts = [jnp.where(x * y > 0, x / y, largest) for x, y in ((least, low), (most, high))]
    count = jnp.minimum(*counts)
    return least / count, most / count, count


def widened(low, high, margin):
    """Widens a range until it holds 0 and is not empty."""
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
        least += narrow_range
        low, high, count = scaled_steps(low, high, least, most)
    bottom, top, count = (per_axis(v, input, axis) for v in (low, high, count))
    x = jnp.clip(input, bottom, top)
    if mode == "SCALED":
        out = (jnp.round if round_mode == "HALF_TO_EVEN" else away)(x * count)
    elif mode == "MIN_FIRST":
        out = min_first(x, bottom, min_first_scale(bottom, top, T)) + least
    else:
        out = away((x - bottom) * ((most - least) / (top - bottom)) - half)
    return jnp.clip(out, least, most).astype(T), low, high


@lowers("Dequantize")
def dequantize(input, min_range, max_range, mode, narrow_range, axis, dtype):
    least, most, half = limits(input.dtype)
    low, high = (per_axis(v, input, axis) for v in (min_range, max_range))
    x = input.astype(np.float32)
    if mode == "SCALED":
        step = high / most
        out = x * (jnp.maximum(low / (least + narrow_range), step) if half else step)
    elif mode == "MIN_FIRST":
        count = min_first_scale(low, high, input.dtype)
        out = jnp.where(low == high, low, away(low * count) / count + (x - least) / count)
    else:
        out = (x + np.float32(half)) * ((high - low) / (most - least)) + low
    return out.astype(dtype)
