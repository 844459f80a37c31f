"""Gradients of fused cells, where a graph takes them itself."""

import pytest
import tensorflow as tf

from tests.tensorflow.agree import agree
from tests.tensorflow.ops.cells import GIVEN, NAMES, X, random

raw = tf.raw_ops
KEPT = "i", "cs", "f", "o", "ci", "co"


@pytest.mark.parametrize("peephole", [False, True])
def test_lstm_cell(peephole):
    def run(*xs):
        given = dict(zip(NAMES, xs))
        out = raw.LSTMBlockCell(**given, use_peephole=peephole)
        kept = {name: getattr(out, name) for name in KEPT}
        sent = {"cs_grad": tf.sin(out.cs), "h_grad": tf.cos(out.h)}
        found = raw.LSTMBlockCellGrad(**given, **kept, **sent, use_peephole=peephole)
        return [*found[:2], *(found[2:] if peephole else ())]  # else TensorFlow leaves them as is

    agree(run, X[0], *GIVEN, grad=False, vmap=False)


@pytest.mark.parametrize("length", [4, 3])
@pytest.mark.parametrize("peephole", [False, True])
def test_lstm(peephole, length):
    def run(*xs):
        given = {"seq_len_max": length, **dict(zip(NAMES, xs))}
        out = raw.BlockLSTM(**given, use_peephole=peephole)
        kept = {name: getattr(out, name) for name in (*KEPT, "h")}
        sent = {"cs_grad": tf.sin(out.cs), "h_grad": tf.cos(out.h)}
        found = raw.BlockLSTMGrad(**given, **kept, **sent, use_peephole=peephole)
        return [found[0][:length], *found[1:4], *(found[4:7] if peephole else ()), found[7]]

    agree(run, X, *GIVEN, grad=False, vmap=False)


def test_gru():
    names = "x", "h_prev", "w_ru", "w_c", "b_ru", "b_c"
    given = random(2, 3), random(2, 5), random(8, 10), random(8, 5), random(10), random(5)

    def run(*xs):
        r, u, c, h = raw.GRUBlockCell(**dict(zip(names, xs)))
        return raw.GRUBlockCellGrad(**dict(zip(names, xs)), r=r, u=u, c=c, d_h=tf.sin(h))

    agree(run, *given, grad=False)
