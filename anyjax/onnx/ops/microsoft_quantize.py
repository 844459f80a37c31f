"""Operators of onnxruntime on quantized arrays: computed in floats, and rounded at the end."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.onnx.core.schema import lowers, update
from anyjax.onnx.ops.activation import flattened
from anyjax.onnx.ops.microsoft_activation import plus
from anyjax.onnx.ops.microsoft_attention import refuse, self_attention
from anyjax.onnx.ops.pool import average_pool
from anyjax.onnx.ops.quantize import (
    dequantize,
    dynamic_quantize,
    linear_conv,
    matmul_integer,
    quantize,
    saturated,
)  # fmt: skip

F = np.float32


def floats(x, scale, zero_point, axis=None):
    """Returns the numbers that integers stand for; an axis other than None has a scale for each."""
    if axis is None:
        scale = scale.reshape(())
        zero_point = None if zero_point is None else zero_point.reshape(())
    return dequantize(x, scale, zero_point, axis or 0, 0, None)


def integers(x, scale, zero_point, dtype, axis=None):
    """Returns the integers that stand for numbers, in the type of others if there is no zero."""
    if axis is None:
        scale = scale.reshape(())
        zero_point = None if zero_point is None else zero_point.reshape(())
    return quantize(x, scale, zero_point, axis or 0, 0, dtype, None, 1)


def unary(function):
    """Returns the lowering of a function of one quantized array."""

    def lowering(X, X_scale, X_zero_point, Y_scale, Y_zero_point):
        return integers(function(floats(X, X_scale, X_zero_point)), Y_scale, Y_zero_point, X.dtype)

    return lowering


update({"com.microsoft::QLinearSigmoid": unary(jax.nn.sigmoid)})


@lowers("com.microsoft::QLinearAdd")
def linear_add(A, A_scale, A_zero_point, B, B_scale, B_zero_point, C_scale, C_zero_point):
    """Rounds once, the zero point of the result included, as onnxruntime does."""
    a, b = A_scale / C_scale, B_scale / C_scale
    zeros = [F(0) if x is None else x.astype(F) for x in (A_zero_point, B_zero_point, C_zero_point)]
    fixed = zeros[2] - (a * zeros[0] + b * zeros[1])
    return saturated(jnp.round(fixed + A.astype(F) * a + B.astype(F) * b), A.dtype)


@lowers("com.microsoft::QLinearMul")
def linear_mul(A, A_scale, A_zero_point, B, B_scale, B_zero_point, C_scale, C_zero_point):
    """Rounds once, the zero point of the result included, as onnxruntime does."""
    a, b, c = (
        F(0) if x is None else x.astype(F) for x in (A_zero_point, B_zero_point, C_zero_point)
    )
    products = (A.astype(F) - a) * (B.astype(F) - b)
    return saturated(jnp.round(products * (A_scale * B_scale / C_scale) + c), A.dtype)


@lowers("com.microsoft::QuantizeLinear")
def quantize_linear(x, y_scale, y_zero_point, axis):
    return integers(x, y_scale, y_zero_point, None, axis if y_scale.ndim else None)


@lowers("com.microsoft::DequantizeLinear")
def dequantize_linear(x, x_scale, x_zero_point, axis):
    return floats(x, x_scale, x_zero_point, axis if x_scale.ndim else None)


@lowers("com.microsoft::QLinearLeakyRelu")
def leaky_relu(X, X_scale, X_zero_point, Y_scale, Y_zero_point, alpha):
    # XLA would multiply the scale by alpha first, which rounds otherwise.
    function = lambda x: jnp.where(x < 0, F(alpha) * lax.optimization_barrier(x), x)
    return unary(function)(X, X_scale, X_zero_point, Y_scale, Y_zero_point)


@lowers("com.microsoft::QLinearSoftmax")
def softmax(X, X_scale, x_zero_point, y_scale, y_zero_point, axis, opset):
    """``opset`` is that of the Softmax: before 13 it is over all axes from ``axis`` on."""
    x = floats(X, X_scale, x_zero_point)
    out = jax.nn.softmax(x, axis) if opset >= 13 else flattened(jax.nn.softmax, x, axis)
    return integers(out, y_scale, y_zero_point, X.dtype)


@lowers("com.microsoft::QLinearConcat")
def concat(Y_scale, Y_zero_point, inputs, axis):
    """The inputs come as an array, its scale and its zero point in turn."""
    arrays = [floats(*inputs[i : i + 3]) for i in range(0, len(inputs), 3)]
    return integers(jnp.concatenate(arrays, axis), Y_scale, Y_zero_point, inputs[0].dtype)


@lowers("com.microsoft::QLinearWhere")
def where(condition, X, x_scale, x_zero_point, Y, y_scale, y_zero_point, z_scale, z_zero_point):
    out = jnp.where(condition, floats(X, x_scale, x_zero_point), floats(Y, y_scale, y_zero_point))
    return integers(out, z_scale, z_zero_point, X.dtype)


@lowers("com.microsoft::QLinearReduceMean")
def reduce_mean(
    data, data_scale, data_zero_point, reduced_scale, reduced_zero_point, axes, keepdims
):
    out = floats(data, data_scale, data_zero_point).mean(axes, keepdims=bool(keepdims))
    return integers(out, reduced_scale, reduced_zero_point, data.dtype)


def pooled(x, channels_last, function):
    """Returns a function of images that have their channels first."""
    return jnp.moveaxis(function(jnp.moveaxis(x, -1, 1)), 1, -1) if channels_last else function(x)


@lowers("com.microsoft::QLinearAveragePool")
def linear_average_pool(
    X, x_scale, x_zero_point, y_scale, y_zero_point, auto_pad, ceil_mode, channels_last,
    count_include_pad, kernel_shape, pads, strides,
):  # fmt: skip
    how = auto_pad, ceil_mode, count_include_pad, None, kernel_shape, pads, strides
    x = floats(X, x_scale, x_zero_point)
    out = pooled(x, channels_last, lambda x: average_pool(x, *how))
    return integers(out, y_scale, y_zero_point, X.dtype)


@lowers("com.microsoft::QLinearGlobalAveragePool")
def linear_global_average_pool(X, x_scale, x_zero_point, y_scale, y_zero_point, channels_last):
    x = floats(X, x_scale, x_zero_point)
    mean = lambda x: x.mean(range(2, x.ndim), keepdims=True)
    return integers(pooled(x, channels_last, mean), y_scale, y_zero_point, X.dtype)


@lowers("com.microsoft::QLinearConv")
def quantized_conv(
    x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, B, auto_pad,
    channels_last, /, *how,
):  # fmt: skip
    weights = w, w_scale, w_zero_point, y_scale, y_zero_point, B, auto_pad
    return pooled(x, channels_last, lambda x: linear_conv(x, x_scale, x_zero_point, *weights, *how))


@lowers("com.microsoft::MatMulIntegerToFloat")
def matmul_integer_to_float(A, B, a_scale, b_scale, a_zero_point, b_zero_point, bias):
    total = matmul_integer(A, B, a_zero_point, b_zero_point).astype(a_scale.dtype)
    return plus(total * (a_scale * b_scale), bias)


@lowers("com.microsoft::DynamicQuantizeMatMul")
def dynamic_quantize_matmul(A, B, b_scale, b_zero_point, bias):
    a, a_scale, a_zero_point = dynamic_quantize(A)
    return matmul_integer_to_float(a, B, a_scale, b_scale, a_zero_point, b_zero_point, bias)


@lowers("com.microsoft::QGemm")
def quantized_gemm(
    A, a_scale, a_zero_point, B, b_scale, b_zero_point, C, y_scale, y_zero_point, alpha, transA,
    transB,
):  # fmt: skip
    """``C`` is of int32, in units of both scales; floats without a scale of the result."""
    a, b = A.T if transA else A, B.T if transB else B
    total = matmul_integer(a, b, a_zero_point, b_zero_point)
    total = plus(total, C).astype(F)
    scale = F(alpha) * a_scale * b_scale
    if y_scale is None:
        return total * scale
    rounded = jnp.round(total * (scale / y_scale)) + y_zero_point.astype(F)
    return saturated(rounded, y_zero_point.dtype)


@lowers("com.microsoft::QAttention")
def quantized_attention(
    input, weight, bias, input_scale, weight_scale, mask_index, input_zero_point,
    weight_zero_point, past, do_rotary, mask_filter_value, num_heads, past_present_share_buffer,
    scale, unidirectional,
):  # fmt: skip
    """The projections are of integers, all else is of floats."""
    if do_rotary or past_present_share_buffer:
        refuse("QAttention", "do_rotary or a shared buffer", "quantize GroupQueryAttention instead")
    scales = input_scale, weight_scale, input_zero_point, weight_zero_point
    projected = matmul_integer_to_float(input, weight, *scales, bias)
    widths = [projected.shape[-1] // 3] * 3
    how = mask_index, past, None, mask_filter_value, num_heads, scale, unidirectional
    return self_attention(projected, widths, *how)
