"""Fused cells: peepholes, clipping, biases of the forget gate, sequences that end early."""

import pytest
import tensorflow as tf

from tests.tensorflow.agree import agree
from tests.tensorflow.ops.cells import GIVEN, NAMES, H, X, random

raw = tf.raw_ops


@pytest.mark.parametrize("peephole, clip", [(False, -1.0), (True, 0.3)])
def test_lstm(peephole, clip):
    how = {"use_peephole": peephole, "cell_clip": clip}
    run = lambda *xs: raw.LSTMBlockCell(**dict(zip(NAMES, xs)), forget_bias=0.7, **how)
    agree(run, X[0], *GIVEN, grad=False)
    run = lambda *xs: raw.BlockLSTM(seq_len_max=4, **dict(zip(NAMES, xs)), **how)
    agree(run, X, *GIVEN, grad=False, vmap=False)
    agree(lambda *xs: (run(*xs).cs, run(*xs).h), X, *GIVEN)


@pytest.mark.parametrize("op", [raw.BlockLSTM, raw.BlockLSTMV2])
def test_lstm_that_ends_early(op):
    """TensorFlow leaves the other outputs undefined beyond the length; its gradient of the second
    version takes the gates for those of the first.
    """
    how = {"use_peephole": True, "cell_clip": 0.4}
    run = lambda *xs: op(seq_len_max=2, **dict(zip(NAMES, xs)), **how)
    agree(lambda *xs: (run(*xs).cs, run(*xs).h), X, *GIVEN, grad=False, vmap=False)


def test_gru():
    names = "x", "h_prev", "w_ru", "w_c", "b_ru", "b_c"
    given = X[0], H, random(8, 10), random(8, 5), random(10), random(5)
    agree(lambda *xs: raw.GRUBlockCell(**dict(zip(names, xs))), *given, grad=False)
