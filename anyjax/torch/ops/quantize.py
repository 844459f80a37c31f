"""Affine quantization: rounding to integers with a scale and a zero point, real or pretended."""

from __future__ import annotations

import jax.numpy as jnp
import torch
from jax import lax

from anyjax.errors import Unsupported
from anyjax.torch.aliasing.no_grad import with_gradient_of
from anyjax.torch.core.schema import aten, lowers
from anyjax.torch.ops._operands import cast


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


SMALLEST_STEP = 6.1e-5  # fbgemm's, so that a step is a normal number in float16


def steps(low, high, quant_min, quant_max, symmetric):
    """(scale, zero point) of the range from ``low`` to ``high``, by torch's C++: not what its
    observers compute in Python, which knows no smallest step and other symmetric limits.
    """
    count, half = quant_max - quant_min, (quant_max - quant_min) // 2
    both = (low < 0) & (high > 0) & symmetric
    most = lax.max(abs(low) / (half + 1), abs(high) / half)
    low = jnp.minimum(jnp.where(both, -most * (half + 1), low), 0)
    high = jnp.maximum(jnp.where(both, most * half, high), 0)
    scale = (high - low) / count
    none = (scale == 0) | jnp.isinf(1 / scale)
    scale = jnp.where(none, 0.1, scale)
    grown = jnp.where(scale < SMALLEST_STEP, SMALLEST_STEP / scale, 1)
    scale = lax.max(scale, jnp.full_like(scale, SMALLEST_STEP))
    # A range of one sign, which includes 0, ends there whatever the step is.
    top = jnp.where((low == 0) & ~none, count, high * grown / scale)
    bottom = jnp.where((high == 0) & ~none, -count, low * grown / scale)
    from_low = abs(quant_min) - abs(bottom) < abs(quant_max) - abs(top)
    zero = jnp.where(from_low, quant_min - bottom, quant_max - top)
    zero = jnp.where((low < 0) & (high > 0) & symmetric, (quant_min + quant_max) / 2, zero)
    return scale, jnp.clip(jnp.round(zero), quant_min, quant_max)


def averaged(x, running_min, running_max, averaging_const, axes):
    """The limits after another ``x``; infinite ones have seen none yet."""
    extremes = x.min(axes).reshape(running_min.shape), x.max(axes).reshape(running_max.shape)
    return (
        jnp.where(jnp.isinf(old), new, old + averaging_const * (new - old)).astype(old.dtype)
        for old, new in zip((running_min, running_max), extremes)
    )


def kept(on, values, buffers):
    """The buffers, with these values where that is on."""
    new = (v.reshape(old.shape).astype(old.dtype) for v, old in zip(values, buffers))
    return [jnp.where(on, v, old) for v, old in zip(new, buffers)]


@lowers(aten._fused_moving_avg_obs_fq_helper_functional)
def observe_and_fake_quantize(
    self, observer_on, fake_quant_on, running_min, running_max, scale, zero_point,
    averaging_const, quant_min, quant_max, ch_axis, per_row_fake_quant, symmetric_quant,
):  # fmt: skip
    if running_min.size == 0:
        raise not_observed()
    if per_row_fake_quant and ch_axis != 0:
        raise ValueError("fused fake quantization per channel is of axis 0 alone, as in torch")
    x, on = lax.stop_gradient(self), fake_quant_on.reshape(()) != 0
    axes = tuple(range(1, x.ndim)) if per_row_fake_quant else None
    seen = averaged(x, running_min, running_max, averaging_const, axes)
    limits = kept(observer_on.reshape(()) != 0, seen, (running_min, running_max))
    scale_and_zero = steps(*limits, quant_min, quant_max, symmetric_quant)
    scale, zero_point = kept(on, scale_and_zero, (scale, zero_point))
    broadcasts = (
        along_axis(v, x, ch_axis) if per_row_fake_quant else v for v in (scale, zero_point)
    )
    out, mask = fake(self, *(lax.stop_gradient(v) for v in broadcasts), quant_min, quant_max)
    return jnp.where(on, out, self), mask | ~on, *limits, scale, zero_point


def not_observed():
    """The error for limits per channel that do not have the channels' number yet."""
    return Unsupported(
        "fake quantization per channel that has seen no values",
        why="its buffers have no elements; they get the number of channels in the first call",
        do="call the module once with torch before it is converted",
    )


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


def levels(x, high):
    """(whole numbers from 0 to ``high``, minus the one that means 0; the step): torch's choice."""
    low, top = lax.min(x.min(), x.dtype.type(0)), lax.max(x.max(), x.dtype.type(0))
    scale = (top - low) / high
    scale = jnp.where((scale == 0) | jnp.isinf(1 / scale), 0.1, scale)
    from_low = abs(low / scale) < high + abs(top / scale)
    zero = jnp.clip(jnp.round(jnp.where(from_low, -low / scale, high - top / scale)), 0, high)
    level = jnp.clip(jnp.round(x * (1 / scale)) + zero, 0, high)
    return (level - zero).astype(jnp.int32), scale


@lowers("quantized.linear_dynamic")
def linear_dynamic(X, W_prepack, reduce_range):
    """Both factors are integers; the packed weights, no tensors, are constants of the program."""
    weight, bias = torch.ops.quantized.linear_unpack(W_prepack)
    if weight.qscheme() in (torch.per_channel_affine, torch.per_channel_symmetric):
        step, zero = weight.q_per_channel_scales(), weight.q_per_channel_zero_points()
    else:
        step, zero = torch.tensor(weight.q_scale()), torch.tensor(weight.q_zero_point())
    integers = weight.int_repr().int().numpy() - zero.int().reshape(-1, 1).numpy()
    x, scale = levels(lax.stop_gradient(X), 127 if reduce_range else 255)
    out = lax.dot_general(x, integers, (((x.ndim - 1,), (1,)), ((), ())))
    out = out.astype(X.dtype) * (scale * step.float().numpy())
    return out if bias is None else out + bias.detach().numpy()


@lowers("quantized.linear_dynamic_fp16")
def linear_dynamic_fp16(X, W_prepack):
    weight, bias = torch.ops.quantized.linear_unpack_fp16(W_prepack)
    out = lax.stop_gradient(X) @ weight.detach().float().numpy().T
    return out if bias is None else out + bias.detach().numpy()
