"""Affine quantization: rounding to integers with a scale and a zero point, real or pretended."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from tojax.torch.aliasing.no_grad import with_gradient_of
from tojax.torch.core.schema import aten, lowers
from tojax.torch.ops._operands import cast


def along_axis(values, x, axis):
    """One value for each index of ``axis``, to broadcast against ``x``."""
    return jnp.reshape(values, [-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])


def fake(x, scale, zero_point, low, high):
    """(x as its integer would be read back, whether it was in range); gradients pass in range."""
    level = jnp.round(cast(x, jnp.float32) * (1 / scale)) + zero_point
    mask = (level >= low) & (level <= high)
    out = ((jnp.clip(level, low, high) - zero_point) * scale).astype(x.dtype)
    return with_gradient_of(jnp.where(mask, x, 0), lax.stop_gradient(out)), mask


@lowers(aten.fake_quantize_per_tensor_affine_cachemask)
def fake_quantize_per_tensor(self, scale, zero_point, quant_min, quant_max):
    return fake(self, jnp.float32(scale), zero_point, quant_min, quant_max)


@lowers(aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams)
def fake_quantize_with_tensors(self, scale, zero_point, fake_quant_enabled, quant_min, quant_max):
    out, mask = fake(self, scale, zero_point, quant_min, quant_max)
    on = jnp.reshape(fake_quant_enabled, ()) != 0
    return jnp.where(on, out, self), mask | ~on


@lowers(aten.fake_quantize_per_channel_affine_cachemask)
def fake_quantize_per_channel(self, scale, zero_point, axis, quant_min, quant_max):
    scale, zero_point = (along_axis(v, self, axis) for v in (scale, zero_point))
    return fake(self, scale, zero_point, quant_min, quant_max)


@lowers("quantized_decomposed.quantize_per_tensor")
def quantize_per_tensor(input, scale, zero_point, quant_min, quant_max, dtype):
    level = jnp.round(cast(input, jnp.float32) * (1 / jnp.float32(scale))) + zero_point
    return jnp.clip(level, quant_min, quant_max).astype(dtype)


@lowers("quantized_decomposed.dequantize_per_tensor")
def dequantize_per_tensor(input, scale, zero_point, quant_min, quant_max, dtype, out_dtype):
    """The limits and the dtype only describe the input."""
    out = (cast(input, jnp.float32) - zero_point) * jnp.float32(scale)
    return cast(out, out_dtype)


@lowers("quantized_decomposed.quantize_per_channel")
def quantize_per_channel(input, scales, zero_points, axis, quant_min, quant_max, dtype):
    scales, zero_points = (along_axis(v, input, axis) for v in (scales, zero_points))
    return quantize_per_tensor(input, scales, zero_points, quant_min, quant_max, dtype)


@lowers("quantized_decomposed.dequantize_per_channel")
def dequantize_per_channel(
    input, scales, zero_points, axis, quant_min, quant_max, dtype, out_dtype
):
    scales = along_axis(scales, input, axis)
    zero_points = 0 if zero_points is None else along_axis(zero_points, input, axis)
    return dequantize_per_tensor(input, scales, zero_points, quant_min, quant_max, dtype, out_dtype)
