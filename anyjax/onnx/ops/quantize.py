"""Quantization: to integers and narrow floats and back, and products of quantized arrays."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.dtypes import is_float
from anyjax.numerics.division import divide
from anyjax.numerics.matmul import product
from anyjax.onnx.core.schema import lowers
from anyjax.onnx.ops.convolution import conv, with_bias
from anyjax.onnx.ops.pointwise import converted

F = np.float32


def spread(value, x, axis, block_size):
    """Shapes a scale or a zero point to broadcast: of all of x, of each slice, or of blocks."""
    if value.size == 1:
        return jnp.reshape(value, ())
    axis %= x.ndim
    if block_size:
        return lax.slice_in_dim(jnp.repeat(value, block_size, axis), 0, x.shape[axis], axis=axis)
    return value.reshape(-1, *[1] * (x.ndim - axis - 1)) if value.ndim == 1 else value


def saturated(x, dtype):
    """Returns whole numbers within the limits of an integer type."""
    limits = jnp.iinfo(dtype)
    return jnp.clip(x, int(limits.min), int(limits.max)).astype(dtype)


def quotient(x, y):
    """Returns x / y, rounded once."""
    return divide(x, y) if not y.ndim else lax.div(*jnp.broadcast_arrays(x, y))


@lowers("QuantizeLinear")
def quantize(x, y_scale, y_zero_point, axis, block_size, output_dtype, precision, saturate):
    """Rounds halves to even, before the zero point is added. The type of the scale, or the
    precision, is that of the division.
    """
    dtype = output_dtype or (np.dtype("uint8") if y_zero_point is None else y_zero_point.dtype)
    wide = y_scale.dtype if not precision else jnp.dtype(precision)
    scale = spread(y_scale, x, axis, block_size).astype(wide)
    scaled = quotient(x.astype(wide), scale).astype(jnp.promote_types(wide, F))
    if is_float(dtype):
        return converted(scaled, dtype, bool(saturate))
    scaled = jnp.round(scaled)
    if y_zero_point is not None:
        scaled = scaled + spread(y_zero_point, x, axis, block_size).astype(F)
    return saturated(scaled, dtype)


@lowers("DequantizeLinear")
def dequantize(x, x_scale, x_zero_point, axis, block_size, output_dtype):
    scale = spread(x_scale, x, axis, block_size)
    wide = jnp.promote_types(scale.dtype, F)
    if x_zero_point is not None and not is_float(x.dtype):
        x = x.astype(np.int32) - spread(x_zero_point, x, axis, block_size).astype(np.int32)
    return (x.astype(wide) * scale.astype(wide)).astype(output_dtype or scale.dtype)


@lowers("DynamicQuantizeLinear")
def dynamic_quantize(x):
    low, high = jnp.minimum(x.min(), 0), jnp.maximum(x.max(), 0)
    scale = jnp.where(high == low, 1, high - low) / F(255)
    zero = jnp.round(jnp.clip(-low / scale, 0, 255))
    return saturated(jnp.round(x / scale) + zero, np.uint8), scale, zero.astype(np.uint8)


@lowers("MatMulInteger")
def matmul_integer(A, B, a_zero_point, b_zero_point):
    """The zero points are those of rows of A and of columns of B."""
    if a_zero_point is not None and a_zero_point.ndim == 1 and A.ndim > 1:
        a_zero_point = a_zero_point[:, None]
    A, B = (
        x.astype(np.int32) - (0 if zero is None else zero.astype(np.int32))
        for x, zero in ((A, a_zero_point), (B, b_zero_point))
    )
    return product(A, B, False, False) if A.ndim > 1 < B.ndim else jnp.matmul(A, B)


def requantized(total, scale, zero_point):
    """Returns sums of products in the type of the zero point."""
    return saturated(jnp.round(total.astype(F) * scale) + zero_point.astype(F), zero_point.dtype)


@lowers("QLinearMatMul")
def linear_matmul(a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point):
    total = matmul_integer(a, b, a_zero_point, b_zero_point)
    if a_scale.ndim == 1 and a_scale.size > 1:
        a_scale = a_scale[:, None]
    return requantized(total, a_scale * b_scale / y_scale, y_zero_point)


def minus(x, zero_point):
    """Returns integers minus their zero point, a number or a vector of those of the first axis."""
    x = x.astype("int32")
    if zero_point is None:
        return x
    zero_point = jnp.asarray(zero_point, "int32")
    return x - (zero_point.reshape(-1, *[1] * (x.ndim - 1)) if zero_point.ndim else zero_point)


def conv_of_integers(x, w, *how):
    """Convolves integers of nine bits exactly, in float32 where the sums of products of the upper
    and of the lower bits of the weights fit it: XLA's CPU compiler is slow at integers.
    """
    if math.prod(w.shape[1:]) * 255 * 16 >= 1 << 24:
        return conv(x, w, None, *how)
    high = w >> 4
    sums = (
        conv(x.astype(F), v.astype(F), None, *how).astype(np.int32) for v in (high, w - high * 16)
    )
    return next(sums) * 16 + next(sums)


@lowers("ConvInteger")
def conv_integer(x, w, x_zero_point, w_zero_point, /, *how):
    return conv_of_integers(minus(x, x_zero_point), minus(w, w_zero_point), *how)


@lowers("QLinearConv")
def linear_conv(
    x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, B, /, *how
):
    total = conv_of_integers(minus(x, x_zero_point), minus(w, w_zero_point), *how)
    scale = x_scale * w_scale / y_scale
    if scale.size > 1:
        scale = scale.reshape(-1, *[1] * (w.ndim - 2))
    return requantized(with_bias(total, B), scale, jnp.reshape(y_zero_point, ()))
