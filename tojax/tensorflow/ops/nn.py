"""Activations and biases."""

from __future__ import annotations

import jax

from tojax.tensorflow.core.schema import lowers, table

table.update({"Relu": jax.nn.relu, "Softmax": lambda logits: jax.nn.softmax(logits)})


@lowers("BiasAdd")
def bias_add(value, bias, data_format):
    return value + (bias if data_format == "NHWC" else bias.reshape(-1, *[1] * (value.ndim - 2)))
