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
