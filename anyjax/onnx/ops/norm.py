"""Normalization: by the statistics of a batch, of groups and layers, by norms and neighbours."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.errors import Unsupported
from anyjax.numerics.normalization import standardized
from anyjax.onnx.core.schema import lowers
from anyjax.onnx.ops.pool import norm


def wide(x, *dtypes):
    """Returns x in float32 at least, and in the dtypes of statistics."""
    return x.astype(jnp.promote_types(np.result_type(x.dtype, *dtypes), np.float32))


def channels(v, x):
    """Shapes a vector of channels; what has more dimensions is shaped already."""
    return v if v.ndim > 1 else v.reshape(-1, *[1] * (x.ndim - 2))


def scaled(x, v, scale, bias):
    """Scales and shifts channels, in the dtype of x."""
    return (v * channels(scale, x) + channels(bias, x)).astype(x.dtype)


@lowers("BatchNormalization")
def batch_norm(X, scale, B, input_mean, input_var, epsilon, momentum, training_mode):
    """The running variance is the biased one."""
    x = wide(X, scale.dtype, input_mean.dtype)
    if not training_mode:
        factor = lax.rsqrt(wide(input_var) + epsilon) * scale
        return scaled(X, x, factor, B - input_mean * factor), input_mean, input_var
    y, *batch = standardized(x, epsilon, tuple(i for i in range(x.ndim) if i != 1))
    pairs = zip((input_mean, input_var), batch)
    running = [momentum * v + (1 - momentum) * new.reshape(v.shape) for v, new in pairs]
    return scaled(X, y, scale, B), *(v.astype(input_mean.dtype) for v in running)


def training_outputs():
    """Refuses the mode of training of old versions."""
    raise Unsupported(
        "BatchNormalization before opset 14 in training",
        why="these versions leave open how the statistics run",
        do="convert the model: onnx.version_converter.convert_version(model, 14)",
    )


@lowers("BatchNormalization@9")
def batch_norm_9(X, scale, B, mean, var, epsilon, momentum):
    y = batch_norm(X, scale, B, mean, var, epsilon, momentum, 0)[0]
    return y, *[training_outputs] * 4


@lowers("InstanceNormalization")
def instance_norm(input, scale, B, epsilon):
    y = standardized(wide(input), epsilon, tuple(range(2, input.ndim)))[0]
    return scaled(input, y, scale, B)


@lowers("GroupNormalization")
def group_norm(X, scale, bias, epsilon, num_groups, stash_type):
    x = wide(X, stash_type).reshape(X.shape[0], num_groups, -1)
    y = standardized(x, epsilon, (2,))[0].reshape(X.shape).astype(X.dtype)
    return scaled(X, y, scale, bias)


@lowers("GroupNormalization@18")
def group_norm_18(X, scale, bias, epsilon, num_groups):
    """Scale and bias are those of groups."""
    scale, bias = (jnp.repeat(v, X.shape[1] // num_groups) for v in (scale, bias))
    return group_norm(X, scale, bias, epsilon, num_groups, np.dtype("float32"))


@lowers("LayerNormalization")
def layer_norm(X, Scale, B, axis, epsilon, stash_type):
    """The statistics are of the dtype ``stash_type``."""
    axes = tuple(range(axis % X.ndim, X.ndim))
    y, mean, variance = standardized(wide(X, stash_type), epsilon, axes)
    y = y.astype(X.dtype) * Scale
    deviation = lambda: lax.rsqrt(variance + epsilon).astype(stash_type)
    return y if B is None else y + B, mean.astype(stash_type), deviation


@lowers("RMSNormalization")
def rms_norm(X, scale, axis, epsilon, stash_type):
    x, axes = wide(X, stash_type), tuple(range(axis % X.ndim, X.ndim))
    y = x * lax.rsqrt(lax.square(x).mean(axes, keepdims=True) + epsilon)
    return y.astype(X.dtype) * scale


@lowers("LRN")
def local_response(X, alpha, beta, bias, size):
    """Divided by a power of the mean of the squares of neighbouring channels."""
    x = wide(X)
    window = [size if i == 1 else 1 for i in range(x.ndim)]
    pads = [((size - 1) // 2, size // 2) if i == 1 else (0, 0) for i in range(x.ndim)]
    zero = np.zeros((), x.dtype)
    around = lax.reduce_window(lax.square(x), zero, lax.add, window, [1] * x.ndim, pads)
    return (x * (bias + alpha / size * around) ** -beta).astype(X.dtype)


@lowers("LpNormalization")
def lp_norm(input, axis, p):
    """Where all is 0 it stays 0."""
    total = norm(input, p, lambda v: v.sum(axis, keepdims=True))
    return jnp.where(total > 0, input / jnp.where(total > 0, total, 1), 0)


@lowers("MeanVarianceNormalization")
def mean_variance_norm(X, axes):
    """Divided by the deviation plus 1e-9."""
    x = wide(X)
    centred = x - x.mean(axes, keepdims=True)
    variance = lax.square(centred).mean(axes, keepdims=True)
    deviation = jnp.where(variance > 0, lax.sqrt(jnp.where(variance > 0, variance, 1)), 0)
    return (centred / (deviation + 1e-9)).astype(X.dtype)
