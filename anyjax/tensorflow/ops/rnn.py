"""Fused cells of recurrent networks and their gradients; a whole LSTM is one ``scan``."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.tensorflow.core.schema import lowers

SIGMOID = lax.logistic


def lstm_cell(xw, cs_prev, h_prev, wh, peepholes, forget_bias, cell_clip, order):
    """Returns (i, cs, f, o, ci, co, h). ``xw`` is the input's product with the weights, bias
    included; ``order`` names the gates as they lie in the weights.
    """
    gates = dict(zip(order, jnp.split(xw + h_prev @ wh, 4, 1)))
    wci, wcf, wco = peepholes or (None, None, None)
    peep = lambda cell, w: 0 if w is None else cell * w
    i = SIGMOID(gates["i"] + peep(cs_prev, wci))
    f = SIGMOID(gates["f"] + forget_bias + peep(cs_prev, wcf))
    ci = jnp.tanh(gates["c"])
    cs = ci * i + cs_prev * f
    # the gradient passes as if nothing were clipped
    if cell_clip > 0:
        cs = cs + lax.stop_gradient(jnp.clip(cs, -cell_clip, cell_clip) - cs)
    o = SIGMOID(gates["o"] + peep(cs, wco))
    co = jnp.tanh(cs)
    return i, cs, f, o, ci, co, o * co


@lowers("LSTMBlockCell")
def lstm_block_cell(x, cs_prev, h_prev, w, wci, wcf, wco, b, forget_bias, cell_clip, use_peephole):
    wx, wh = w[: x.shape[1]], w[x.shape[1] :]
    peepholes = (wci, wcf, wco) if use_peephole else None
    how = np.array(forget_bias, x.dtype), cell_clip, "icfo"
    return lstm_cell(x @ wx + b, cs_prev, h_prev, wh, peepholes, *how)


def lstm_block(
    order, seq_len_max, x, cs_prev, h_prev, w, wci, wcf, wco, b, forget_bias, clip, peephole, /
):
    """Runs the cell over all steps; outputs beyond ``seq_len_max`` are 0."""
    wx, wh = w[: x.shape[2]], w[x.shape[2] :]
    peepholes = (wci, wcf, wco) if peephole else None
    how = np.array(forget_bias, x.dtype), clip, order

    def step(state, xw):
        out = lstm_cell(xw, *state, wh, peepholes, *how)
        return (out[1], out[-1]), out

    outputs = lax.scan(step, (cs_prev, h_prev), x @ wx + b)[1]
    return until(seq_len_max, *outputs)


def until(seq_len_max, *arrays):
    """Returns arrays of steps with 0 in those from ``seq_len_max`` on."""
    inside = (np.arange(len(arrays[0])) < seq_len_max)[:, None, None]
    return tuple(jnp.where(inside, x, np.zeros((), x.dtype)) for x in arrays)


def used(use_peephole, *weights):
    return [x if use_peephole else jnp.zeros_like(x) for x in weights]


lowers("BlockLSTM")(lambda *inputs: lstm_block("icfo", *inputs))


@lowers("BlockLSTMV2")
def block_lstm_v2(seq_len_max, x, cs_prev, h_prev, w, wci, wcf, wco, b, /, *how):
    """Its gates lie in another order, and none is biased."""
    weights = w, wci, wcf, wco, b
    return lstm_block("ifco", seq_len_max, x, cs_prev, h_prev, *weights, 0, *how)


@lowers("GRUBlockCell")
def gru_block_cell(x, h_prev, w_ru, w_c, b_ru, b_c):
    gates = SIGMOID(jnp.concatenate([x, h_prev], 1) @ w_ru + b_ru)
    r, u = jnp.split(gates, 2, 1)
    c = jnp.tanh(jnp.concatenate([x, h_prev * r], 1) @ w_c + b_c)
    return r, u, c, u * (h_prev - c) + c


# Gradients, from the outputs of the cells.


def gates_grad(cs_prev, residuals, peepholes, cs_grad, h_grad):
    """Returns the gradients of the previous cell state and of the gates i, c, f and o."""
    i, _, f, o, ci, co = residuals
    wci, wcf, wco = peepholes
    do = o * (1 - o) * h_grad * co
    dcs = (1 - co**2) * h_grad * o + cs_grad + do * wco
    dc = (1 - ci**2) * dcs * i
    df = f * (1 - f) * dcs * cs_prev
    di = i * (1 - i) * dcs * ci
    return dcs * f + di * wci + df * wcf, (di, dc, df, do)


@lowers("LSTMBlockCellGrad")
def lstm_block_cell_grad(
    x, cs_prev, h_prev, w, wci, wcf, wco, b, i, cs, f, o, ci, co, cs_grad, h_grad, use_peephole
):
    peepholes, residuals = used(use_peephole, wci, wcf, wco), (i, cs, f, o, ci, co)
    cs_prev_grad, gates = gates_grad(cs_prev, residuals, peepholes, cs_grad, h_grad)
    di, _, df, do = gates
    pairs = ((di, cs_prev), (df, cs_prev), (do, cs))
    weights = [jnp.sum(g * c, 0) if use_peephole else jnp.zeros_like(wci) for g, c in pairs]
    return cs_prev_grad, jnp.concatenate(gates, 1), *weights


def lstm_block_grad(
    order, seq_len_max, x, cs_prev, h_prev, w, wci, wcf, wco, b,
    i, cs, f, o, ci, co, h, cs_grad, h_grad, use_peephole, /,
):  # fmt: skip
    """Returns the gradients of all inputs; steps from ``seq_len_max`` on have none."""
    wx, wh = w[: x.shape[2]], w[x.shape[2] :]
    peepholes, residuals = used(use_peephole, wci, wcf, wco), (i, cs, f, o, ci, co)
    out_grads = until(seq_len_max, cs_grad, h_grad)
    previous = lambda first, states: jnp.concatenate([first[None], states[:-1]])
    cs_inputs, h_inputs = previous(cs_prev, residuals[1]), previous(h_prev, h)

    def step(carry, inputs):
        cs_input, saved, step_grads = inputs
        down, gates = gates_grad(cs_input, saved, peepholes, *map(jnp.add, carry, step_grads))
        flat = jnp.concatenate([gates["icfo".index(g)] for g in order], 1)
        return (down, flat @ wh.T), (flat, gates[0], gates[2], gates[3])

    start = jnp.zeros_like(cs_prev), jnp.zeros_like(h_prev)
    end, (flat, di, df, do) = lax.scan(step, start, (cs_inputs, residuals, out_grads), reverse=True)
    w_grad = jnp.einsum("tbi,tbo->io", jnp.concatenate([x, h_inputs], 2), flat)
    pairs = ((di, cs_inputs), (df, cs_inputs), (do, residuals[1]))
    peephole_grads = [jnp.sum(g * c, (0, 1)) * bool(use_peephole) for g, c in pairs]
    return (flat @ wx.T, *end, w_grad, *peephole_grads, jnp.sum(flat, (0, 1)))


lowers("BlockLSTMGrad")(lambda *inputs: lstm_block_grad("icfo", *inputs))
lowers("BlockLSTMGradV2")(lambda *inputs: lstm_block_grad("ifco", *inputs))


@lowers("GRUBlockCellGrad")
def gru_block_cell_grad(x, h_prev, w_ru, w_c, b_ru, b_c, r, u, c, d_h):
    d_c = d_h * (1 - u) * (1 - c**2)
    x_of_c, d_hr = jnp.split(d_c @ w_c.T, [x.shape[1]], 1)
    gates = d_hr * h_prev * r * (1 - r), d_h * (h_prev - c) * u * (1 - u)
    d_ru = jnp.concatenate(gates, 1)
    x_of_ru, h_of_ru = jnp.split(d_ru @ w_ru.T, [x.shape[1]], 1)
    return x_of_c + x_of_ru, h_of_ru + d_hr * r + d_h * u, d_c, d_ru
