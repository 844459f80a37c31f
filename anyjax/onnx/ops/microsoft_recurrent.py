"""The recurrent network of onnxruntime with weights of eight bits."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from anyjax.onnx.core.schema import lowers
from anyjax.onnx.ops.quantize import dequantize, dynamic_quantize
from anyjax.onnx.ops.recurrent import lstm_cell, network


def rounded(x):
    """Returns x as the integers of eight bits stand for it whose range is its own."""
    return dequantize(*dynamic_quantize(x), 0, 0, None)


def weights_of(integers, scale, zero_point):
    """Returns ``[directions, gates, inputs]`` of transposed integers; directions or gates have
    scales.
    """
    shape = len(integers), 1, -1
    scale, zero = scale.reshape(shape), zero_point.astype(np.int32).reshape(shape)
    return jnp.swapaxes((integers.astype(np.int32) - zero).astype(scale.dtype) * scale, 1, 2)


def rounding_cell(cell):
    """Returns a cell whose recurrence reads the state, of which each row is rounded by itself."""

    def build(*arguments):
        step = cell(*arguments)
        return lambda x, hidden, c: step(x, jax.vmap(rounded)(hidden), c)

    return build


@lowers("com.microsoft::DynamicQuantizeLSTM")
def dynamic_quantize_lstm(
    X, W, R, B, sequence_lens, initial_h, initial_c, P, W_scale, W_zero_point, R_scale,
    R_zero_point, activation_alpha, activation_beta, activations, clip, direction, hidden_size,
    input_forget,
):  # fmt: skip
    """The input is rounded as a whole, the state at each step."""
    W, R = weights_of(W, W_scale, W_zero_point), weights_of(R, R_scale, R_zero_point)
    how = activation_alpha, activation_beta, activations, clip, direction, 0
    cell, names = rounding_cell(lstm_cell(input_forget)), ("Sigmoid", "Tanh", "Tanh")
    states = initial_h, initial_c
    return network(cell, names, rounded(X), W, R, B, sequence_lens, states, how, (P,))
