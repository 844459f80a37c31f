"""Recurrent networks: one ``lax.scan`` for each direction."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.errors import Unsupported
from anyjax.numerics.matmul import product
from anyjax.onnx.core.schema import lowers

# In small letters: (function of x, alpha and beta as far as it has them, their defaults).
ACTIVATIONS = {
    "tanh": (jnp.tanh,),
    "sigmoid": (jax.nn.sigmoid,),
    "relu": (jax.nn.relu,),
    "softsign": (jax.nn.soft_sign,),
    "softplus": (jax.nn.softplus,),
    "affine": (lambda x, a, b: a * x + b, 1.0, 0.0),
    "scaledtanh": (lambda x, a, b: a * jnp.tanh(b * x), 1.0, 1.0),
    "hardsigmoid": (lambda x, a, b: jnp.clip(a * x + b, 0, 1), 0.2, 0.5),
    "leakyrelu": (lambda x, a: jnp.where(x >= 0, x, a * x), 0.01),
    "thresholdedrelu": (lambda x, a: jnp.where(x >= a, x, 0), 1.0),
    "elu": (lambda x, a: jax.nn.elu(x, a), 1.0),
}


def functions(names, alphas, betas):
    """Returns the activations; each takes the next alpha and beta if it has one."""
    alphas, betas = iter(alphas or ()), iter(betas or ())
    for name in names:
        if name.lower() not in ACTIVATIONS:
            raise Unsupported(
                f"the activation {name!r} of a recurrent network",
                why="ONNX does not name it",
                do="take one of " + ", ".join(sorted(ACTIVATIONS)),
            )
        function, *defaults = ACTIVATIONS[name.lower()]
        numbers = [next(xs, x) for xs, x in zip((alphas, betas), defaults)]
        yield lambda x, f=function, ns=numbers: f(x, *ns)


def scan(cell, x, states, active, reverse):
    """Runs a cell over [time, batch, gates]; rows that are not active keep their states."""

    def step(states, inputs):
        x, active = inputs
        new = cell(x, *states)
        if active is None:
            return new, new[0]
        mask = active[:, None]
        return tuple(jnp.where(mask, *pair) for pair in zip(new, states)), new[0] * mask

    return lax.scan(step, states, (x, active), reverse=reverse)


def one_way(cell, functions, x, W, R, B, *extra):
    """Returns the step of a direction, and its inputs: one product for all."""
    gates, size = product(x, W, False, True), len(W)
    gates = gates if B is None else gates + B[:size]
    return cell(*functions, R, 0 if B is None else B[size:], *extra), gates


def network(cell, names, X, W, R, B, sequence_lens, states, how, extra=()):
    """Returns the outputs and the last states.

    ``cell`` is called with an activation for each of its ``names``, the matrix and the bias of the
    recurrence and the ``extra`` weights, all of one direction, and makes a step of them. ``how`` is
    (alphas, betas, activations, clip, direction, layout).
    """
    alphas, betas, activations, clip, direction, layout = how
    x, count = X.swapaxes(0, 1) if layout else X, len(names)
    chosen = list(functions(activations or names * len(W), alphas, betas))
    if clip is not None:  # not what the last activation of an LSTM takes, as in onnxruntime
        clipped = lambda f: lambda x: f(x.clip(-clip, clip))
        chosen = [clipped(f) if i % count < 2 else f for i, f in enumerate(chosen)]
    active = None
    if sequence_lens is not None:
        active = np.arange(x.shape[0])[:, None] < sequence_lens
    zeros, ends = jnp.zeros((x.shape[1], R.shape[2]), x.dtype), []
    for k in range(len(W)):
        start = tuple(zeros if v is None else v[:, k] if layout else v[k] for v in states)
        weights = (None if v is None else v[k] for v in (W, R, B, *extra))
        step, gates = one_way(cell, chosen[k * count : (k + 1) * count], x, *weights)
        ends.append(scan(step, gates, start, active, direction == "reverse" or k == 1))
    last = [jnp.stack(v, 1 if layout else 0) for v in zip(*(end for end, _ in ends))]
    y = jnp.stack([out for _, out in ends], 1)
    return y.transpose(2, 0, 1, 3) if layout else y, *last


def rnn_cell(f, R, bias):
    return lambda x, h: (f(x + product(h, R, False, True) + bias),)


def gru_cell(linear_before_reset):
    """Returns the cell; the reset gate scales the state, or its product with the weights."""

    def cell(f, g, R, bias):
        size = R.shape[1]
        b = jnp.broadcast_to(bias, (3 * size,))

        def step(x, h):
            if linear_before_reset:
                recurrent = product(h, R, False, True) + b
                gates, inner = recurrent[:, : 2 * size], recurrent[:, 2 * size :]
            else:
                gates = product(h, R[: 2 * size], False, True) + b[: 2 * size]
            z, r = jnp.split(f(x[:, : 2 * size] + gates), 2, 1)
            if not linear_before_reset:
                inner = product(r * h, R[2 * size :], False, True) + b[2 * size :]
            new = g(x[:, 2 * size :] + (r * inner if linear_before_reset else inner))
            return ((1 - z) * new + z * h,)

        return step

    return cell


def lstm_cell(input_forget):
    """Returns the cell; ``input_forget`` couples the gates of input and of forgetting."""

    def cell(f, g, h, R, bias, peepholes):
        pi, po, pf = (0, 0, 0) if peepholes is None else jnp.split(peepholes, 3)

        def step(x, hidden, c):
            i, o, forget, new = jnp.split(x + product(hidden, R, False, True) + bias, 4, 1)
            i = f(i + pi * c)
            forget = 1 - i if input_forget else f(forget + pf * c)
            c = forget * c + i * g(new)
            return f(o + po * c) * h(c), c

        return step

    return cell


@lowers("RNN")
def rnn(
    X, W, R, B, sequence_lens, initial_h, activation_alpha, activation_beta, activations, clip,
    direction, hidden_size, layout,
):  # fmt: skip
    how = activation_alpha, activation_beta, activations[: len(W)], clip, direction, layout
    return network(rnn_cell, ("Tanh",), X, W, R, B, sequence_lens, (initial_h,), how)


@lowers("GRU")
def gru(
    X, W, R, B, sequence_lens, initial_h, activation_alpha, activation_beta, activations, clip,
    direction, hidden_size, layout, linear_before_reset,
):  # fmt: skip
    how = activation_alpha, activation_beta, activations, clip, direction, layout
    cell, names = gru_cell(linear_before_reset), ("Sigmoid", "Tanh")
    return network(cell, names, X, W, R, B, sequence_lens, (initial_h,), how)


@lowers("LSTM")
def lstm(
    X, W, R, B, sequence_lens, initial_h, initial_c, P, activation_alpha, activation_beta,
    activations, clip, direction, hidden_size, input_forget, layout,
):  # fmt: skip
    how = activation_alpha, activation_beta, activations, clip, direction, layout
    cell, names = lstm_cell(input_forget), ("Sigmoid", "Tanh", "Tanh")
    states = initial_h, initial_c
    return network(cell, names, X, W, R, B, sequence_lens, states, how, (P,))
