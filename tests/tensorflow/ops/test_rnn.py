"""Fused cells and their gradients: peepholes, clipping, biases, sequences that end early."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tensorflow.agree import assert_agrees

pytestmark = pytest.mark.sample(every=10)

raw = tf.raw_ops
RNG = np.random.default_rng(1)


def random(*shape):
    return RNG.standard_normal(shape).astype(np.float32) / 2


X, CS, H = random(4, 2, 3), random(2, 5), random(2, 5)
W, B, PEEPS = random(8, 20), random(20), [random(5) for _ in range(3)]
NAMES = "x", "cs_prev", "h_prev", "w", "wci", "wcf", "wco", "b"
GIVEN = CS, H, W, *PEEPS, B


@pytest.mark.parametrize("peephole, clip", [(False, -1.0), (True, 0.3)])
def test_lstm(peephole, clip):
    how = {"use_peephole": peephole, "cell_clip": clip}
    run = lambda *xs: raw.LSTMBlockCell(**dict(zip(NAMES, xs)), forget_bias=0.7, **how)
    assert_agrees(run, X[0], *GIVEN, grad=False)
    run = lambda *xs: raw.BlockLSTM(seq_len_max=4, **dict(zip(NAMES, xs)), **how)
    assert_agrees(run, X, *GIVEN, grad=False, vmap=False)
    assert_agrees(lambda *xs: (run(*xs).cs, run(*xs).h), X, *GIVEN)


@pytest.mark.parametrize("op", [raw.BlockLSTM, raw.BlockLSTMV2])
def test_lstm_that_ends_early(op):
    """TensorFlow leaves the other outputs undefined beyond the length; its gradient of the second
    version takes the gates for those of the first.
    """
    how = {"use_peephole": True, "cell_clip": 0.4}
    run = lambda *xs: op(seq_len_max=2, **dict(zip(NAMES, xs)), **how)
    assert_agrees(lambda *xs: (run(*xs).cs, run(*xs).h), X, *GIVEN, grad=False, vmap=False)


def test_gru():
    names = "x", "h_prev", "w_ru", "w_c", "b_ru", "b_c"
    args = X[0], H, random(8, 10), random(8, 5), random(10), random(5)
    assert_agrees(lambda *xs: raw.GRUBlockCell(**dict(zip(names, xs))), *args, grad=False)


# Gradients, where a graph takes them itself.


RESIDUALS = "i", "cs", "f", "o", "ci", "co"


@pytest.mark.parametrize("peephole", [False, True])
def test_lstm_cell(peephole):
    def run(*xs):
        inputs = dict(zip(NAMES, xs))
        out = raw.LSTMBlockCell(**inputs, use_peephole=peephole)
        residuals = {name: getattr(out, name) for name in RESIDUALS}
        cotangents = {"cs_grad": tf.sin(out.cs), "h_grad": tf.cos(out.h)}
        grads = raw.LSTMBlockCellGrad(**inputs, **residuals, **cotangents, use_peephole=peephole)
        return [*grads[:2], *(grads[2:] if peephole else ())]  # else TensorFlow leaves them as is

    assert_agrees(run, X[0], *GIVEN, grad=False, vmap=False)


@pytest.mark.parametrize("length", [4, 3])
@pytest.mark.parametrize("peephole", [False, True])
def test_lstm_grad(peephole, length):
    def run(*xs):
        inputs = {"seq_len_max": length, **dict(zip(NAMES, xs))}
        out = raw.BlockLSTM(**inputs, use_peephole=peephole)
        residuals = {name: getattr(out, name) for name in (*RESIDUALS, "h")}
        cotangents = {"cs_grad": tf.sin(out.cs), "h_grad": tf.cos(out.h)}
        grads = raw.BlockLSTMGrad(**inputs, **residuals, **cotangents, use_peephole=peephole)
        return [grads[0][:length], *grads[1:4], *(grads[4:7] if peephole else ()), grads[7]]

    assert_agrees(run, X, *GIVEN, grad=False, vmap=False)


def test_gru_grad():
    names = "x", "h_prev", "w_ru", "w_c", "b_ru", "b_c"
    args = random(2, 3), random(2, 5), random(8, 10), random(8, 5), random(10), random(5)

    def run(*xs):
        r, u, c, h = raw.GRUBlockCell(**dict(zip(names, xs)))
        return raw.GRUBlockCellGrad(**dict(zip(names, xs)), r=r, u=u, c=c, d_h=tf.sin(h))

    assert_agrees(run, *args, grad=False)
