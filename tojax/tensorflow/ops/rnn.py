"""Fused cells of recurrent networks; a whole LSTM is one ``scan``."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from tojax.tensorflow.core.schema import lowers

SIGMOID = lax.logistic


def lstm_cell(xw, cs_prev, h_prev, wh, peepholes, forget_bias, cell_clip, order):
    """(i, cs, f, o, ci, co, h) from what the input adds to the gates, bias included; ``order``
    names the gates as they lie in the weights.
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


def block(seq_len_max, x, cs_prev, h_prev, w, wci, wcf, wco, b, forget_bias, clip, peephole, order):
    """Outputs beyond ``seq_len_max`` are 0."""
    wx, wh = w[: x.shape[2]], w[x.shape[2] :]
    peepholes = (wci, wcf, wco) if peephole else None
    how = np.array(forget_bias, x.dtype), clip, order

    def step(state, xw):
        out = lstm_cell(xw, *state, wh, peepholes, *how)
        return (out[1], out[-1]), out

    outputs = lax.scan(step, (cs_prev, h_prev), x @ wx + b)[1]
    inside = (np.arange(x.shape[0]) < seq_len_max)[:, None, None]
    return tuple(jnp.where(inside, y, np.zeros((), y.dtype)) for y in outputs)


@lowers("BlockLSTM")
def block_lstm(
    seq_len_max, x, cs_prev, h_prev, w, wci, wcf, wco, b, forget_bias, cell_clip, use_peephole
):
    weights = w, wci, wcf, wco, b
    how = forget_bias, cell_clip, use_peephole, "icfo"
    return block(seq_len_max, x, cs_prev, h_prev, *weights, *how)


@lowers("BlockLSTMV2")
def block_lstm_v2(seq_len_max, x, cs_prev, h_prev, w, wci, wcf, wco, b, cell_clip, use_peephole):
    """Its gates lie in another order, and none is biased."""
    weights = w, wci, wcf, wco, b
    return block(seq_len_max, x, cs_prev, h_prev, *weights, 0, cell_clip, use_peephole, "ifco")


@lowers("GRUBlockCell")
def gru_block_cell(x, h_prev, w_ru, w_c, b_ru, b_c):
    gates = SIGMOID(jnp.concatenate([x, h_prev], 1) @ w_ru + b_ru)
    r, u = jnp.split(gates, 2, 1)
    c = jnp.tanh(jnp.concatenate([x, h_prev * r], 1) @ w_c + b_c)
    return r, u, c, u * (h_prev - c) + c
