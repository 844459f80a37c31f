"""Choosing by a mask."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tojax
from tests.tensorflow.agree import agree
from tojax.errors import DataDependent

X = np.array([[1.0, np.nan, -0.0], [np.inf, 2.0, 3.0]], np.float32)
Y = np.full((2, 3), 7, np.float32)
MASK = np.array([[True, False, True], [False, False, True]])


@pytest.mark.parametrize(
    "mask, x, y",
    [(MASK, X, Y), (MASK[0], X, Y), (MASK, X[:, :1], Y), (MASK[0, 0], X, Y[:1]),
     (MASK, MASK.astype(np.int32), np.int32(3)), (MASK[:0], X[:0], Y[:0])],
)  # fmt: skip
def test_select(mask, x, y):
    agree(tf.where, mask, x, y)


@pytest.mark.parametrize("mask", [MASK, MASK[:, 0], MASK[0, 0]])
def test_select_v1(mask):
    agree(tf.compat.v1.where, mask, X, Y)


def test_where():
    model = tojax.from_tensorflow(tf.where, MASK)
    with pytest.raises(DataDependent, match="input of Where"):
        jax.jit(lambda mask: model.apply({}, mask))(MASK)
    for mask in (MASK, X, np.zeros(3, bool)):
        model = tojax.from_tensorflow(tf.where, mask)
        got = model.apply({}, mask)
        np.testing.assert_array_equal(got, tf.where(mask))
        assert got.dtype == np.int32
