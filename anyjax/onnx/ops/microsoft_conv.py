"""Convolutions and pooling of onnxruntime, with activations and with channels last."""

from __future__ import annotations

import jax.numpy as jnp

from anyjax.onnx.core.schema import lowers
from anyjax.onnx.ops.convolution import conv
from anyjax.onnx.ops.microsoft_activation import activated, plus
from anyjax.onnx.ops.pool import max_pool


def channels_first(x):
    return jnp.moveaxis(x, -1, 1)


def channels_last(x):
    return jnp.moveaxis(x, 1, -1)


@lowers("com.microsoft::FusedConv")
def fused_conv(X, W, B, Z, activation, activation_params, /, *how):
    return activated(plus(conv(X, W, B, *how), Z), activation, *(activation_params or ()))


@lowers("com.microsoft::NhwcFusedConv")
def nhwc_fused_conv(X, W, B, Z, activation, activation_params, /, *how):
    out = channels_last(conv(channels_first(X), W, B, *how))
    return activated(plus(out, Z), activation, *(activation_params or ()))


@lowers("com.microsoft::NhwcConv")
def nhwc_conv(X, W, B, /, *how):
    """The filters have their channels last, too."""
    return channels_last(conv(channels_first(X), channels_first(W), B, *how))


@lowers("com.microsoft::NhwcMaxPool")
def nhwc_max_pool(x, auto_pad, ceil_mode, dilations, kernel_shape, pads, strides):
    how = auto_pad, ceil_mode, dilations, kernel_shape, pads, 0, strides
    return channels_last(max_pool(channels_first(x), *how)[0])
