"""Biases: a vector along the channels."""

from __future__ import annotations

import jax.numpy as jnp

from tojax.tensorflow.core.schema import lowers, table


@lowers("BiasAdd")
def bias_add(value, bias, data_format):
    return value + (bias if data_format == "NHWC" else bias.reshape(-1, *[1] * (value.ndim - 2)))


@lowers("BiasAddGrad")
def bias_add_grad(out_backprop, data_format):
    channels = 1 if data_format == "NCHW" else out_backprop.ndim - 1
    return jnp.sum(out_backprop, [i for i in range(out_backprop.ndim) if i != channels])


table.update({"BiasAddV1": lambda value, bias: value + bias})
