"""Normalisations; float16 and bfloat16 are normalised in float32, as torch's kernels do."""

import math

import jax.numpy as jnp
from jax import lax

from anyjax.torch.core.schema import aten, lowers
from anyjax.torch.ops._operands import wide


def centre(x, axes):
    """(x - mean, mean, biased variance), the statistics with kept dimensions."""
    mean = x.mean(axes, keepdims=True)
    centred = lax.sub(x, mean)
    return centred, mean, lax.square(centred).mean(axes, keepdims=True)


def affine(x, weight, bias):
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def over_channels(x, rank: int):
    """A vector, which may have dimensions of one element, over dimension 1 of a tensor of this
    rank.
    """
    if x is None:
        return None
    return lax.expand_dims(wide(x if x.ndim == 1 else x.reshape(-1)), range(1, rank - 1))


@lowers(aten.native_layer_norm)
def native_layer_norm(input, normalized_shape, weight, bias, eps):
    """The mean and 1 / deviation have no gradient in torch; those of groups do."""
    axes = tuple(range(input.ndim - len(normalized_shape), input.ndim))
    centred, mean, variance = centre(wide(input), axes)
    rstd = lax.rsqrt(variance + eps)
    out = affine(lax.mul(centred, rstd), wide(weight), wide(bias)).astype(input.dtype)
    statistics_dtype = input.dtype if weight is None else weight.dtype
    return out, *(lax.stop_gradient(x.astype(statistics_dtype)) for x in (mean, rstd))


@lowers(aten.layer_norm)
def layer_norm(input, normalized_shape, weight, bias, eps, cudnn_enable):
    return native_layer_norm(input, normalized_shape, weight, bias, eps)[0]


@lowers(aten.rms_norm)
def rms_norm(input, normalized_shape, weight, eps):
    """Without eps, that of the dtype that is computed in counts: float32's for 16 bits."""
    eps = float(jnp.finfo(wide(input).dtype).eps) if eps is None else eps
    x = wide(input)
    axes = tuple(range(input.ndim - len(normalized_shape), input.ndim))
    out = x * lax.rsqrt(jnp.square(x).mean(axes, keepdims=True) + eps)
    return affine(out, wide(weight), None).astype(input.dtype)


@lowers(aten.native_group_norm)
def native_group_norm(input, weight, bias, N, C, HxW, group, eps):
    centred, mean, variance = centre(
        wide(input).reshape(N, group, math.prod(input.shape[1:]) // group), 2
    )
    rstd = lax.rsqrt(variance + eps)
    out = (centred * rstd).reshape(input.shape)
    out = affine(out, over_channels(weight, input.ndim), over_channels(bias, input.ndim))
    statistics_dtype = input.dtype if weight is None else weight.dtype
    return (
        out.astype(input.dtype),
        mean[..., 0].astype(statistics_dtype),
        rstd[..., 0].astype(statistics_dtype),
    )


@lowers(aten.group_norm)
def group_norm(input, num_groups, weight, bias, eps, cudnn_enabled):
    n, c = input.shape[:2]
    return native_group_norm(input, weight, bias, n, c, None, num_groups, eps)[0]


def batch_norm_of(input, weight, bias, running_mean, running_var, training, momentum, eps):
    """(result, mean, 1 / deviation, new running mean, new running variance); only the result has a
    gradient.
    """
    if not training:
        rstd = lax.rsqrt(wide(running_var) + eps)
        scale = rstd if weight is None else rstd * wide(weight)
        shift = affine(-wide(running_mean) * scale, None, wide(bias))
        out = affine(
            wide(input), over_channels(scale, input.ndim), over_channels(shift, input.ndim)
        )
        empty = jnp.zeros(0, input.dtype)
        return out.astype(input.dtype), empty, empty, None, None
    centred, mean, variance = centre(wide(input), (0, *range(2, input.ndim)))
    rstd = lax.rsqrt(variance + eps)
    out = affine(centred * rstd, over_channels(weight, input.ndim), over_channels(bias, input.ndim))
    moved = running_statistics(input, running_mean, running_var, mean, variance, momentum)
    saved = (lax.stop_gradient(x.reshape(-1).astype(input.dtype)) for x in (mean, rstd))
    return out.astype(input.dtype), *saved, *moved


def running_statistics(input, running_mean, running_var, mean, variance, momentum):
    """Their next values, from statistics with kept dimensions; the unbiased variance runs.

    An empty batch leaves them as they are.
    """
    if not input.size:
        return [running_mean, running_var]
    return list(_moved(input, running_mean, running_var, mean, variance, momentum))


def _moved(input, running_mean, running_var, mean, variance, momentum):
    count = input.size // mean.size
    pairs = (running_mean, mean), (running_var, variance * (count / max(count - 1, 1)))
    for old, new in pairs:
        new = new.reshape(-1, input.shape[1]).mean(0)
        yield None if old is None else ((1 - momentum) * old + momentum * new).astype(old.dtype)


@lowers(aten.batch_norm)
def batch_norm(*inputs_and_cudnn):
    """A hidden write: the running statistics come back, too (see core/schema.py)."""
    out, _, _, *moved = batch_norm_of(*inputs_and_cudnn[:-1])
    return out, *moved


@lowers(aten.native_batch_norm)
def native_batch_norm(*inputs):
    *out, mean, var = batch_norm_of(*inputs)
    return tuple(out), mean, var


@lowers(aten.batch_norm_update_stats)
def batch_norm_update_stats(input, running_mean, running_var, momentum):
    """(mean, biased variance), and the hidden writes."""
    _, mean, variance = centre(wide(input), (0, *range(2, input.ndim)))
    moved = running_statistics(input, running_mean, running_var, mean, variance, momentum)
    return (mean.reshape(-1), variance.reshape(-1)), *moved


@lowers(aten._native_batch_norm_legit_functional)
def native_batch_norm_functional(input, weight, bias, running_mean, running_var, training, /, *how):
    """Nothing hidden here: the running statistics are results, the old ones when not training."""
    old = running_mean, running_var
    *out, mean, var = batch_norm_of(input, weight, bias, *old, training, *how)
    return (*out, mean, var) if training else (*out, running_mean, running_var)


@lowers(aten._native_batch_norm_legit.no_stats)
def native_batch_norm_no_stats(input, weight, bias, training, momentum, eps):
    """There are no others, so the batch's statistics count in either mode."""
    return batch_norm_of(input, weight, bias, None, None, True, momentum, eps)[:3]


@lowers(aten._native_batch_norm_legit_no_training)
def native_batch_norm_no_training(input, weight, bias, running_mean, running_var, /, *how):
    return batch_norm_of(input, weight, bias, running_mean, running_var, False, *how)[:3]


@lowers(aten._batch_norm_no_update)
def batch_norm_no_update(*inputs):
    """The fourth result is room for cuDNN, empty here."""
    return (*native_batch_norm_no_training(*inputs), jnp.zeros(0, jnp.uint8))


@lowers(aten._batch_norm_with_update_functional)
def batch_norm_with_update(input, weight, bias, running_mean, running_var, /, *how):
    *out, mean, var = batch_norm_of(input, weight, bias, running_mean, running_var, True, *how)
    return (*out, jnp.zeros(0, jnp.uint8), mean, var)


@lowers(aten.instance_norm)
def instance_norm(
    input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, cudnn_enabled
):
    """A hidden write: the batch's mean of each instance's running statistics."""
    if not use_input_stats:
        old = running_mean, running_var
        return batch_norm(input, weight, bias, *old, False, momentum, eps, cudnn_enabled)
    centred, mean, variance = centre(wide(input), tuple(range(2, input.ndim)))
    out = centred * lax.rsqrt(variance + eps)
    out = affine(out, over_channels(weight, input.ndim), over_channels(bias, input.ndim))
    moved = running_statistics(input, running_mean, running_var, mean, variance, momentum)
    return out.astype(input.dtype), *moved


@lowers(aten._weight_norm)
def weight_norm(v, g, dim):
    """``dim`` is the one dimension that the norm keeps, -1 keeps none."""
    axes = tuple(i for i in range(v.ndim) if i != dim)
    norm = jnp.sqrt(jnp.square(wide(v)).sum(axes, keepdims=True))
    return (wide(v) * (wide(g) / norm)).astype(v.dtype)
