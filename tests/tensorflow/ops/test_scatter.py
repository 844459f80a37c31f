"""Writing to positions."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tensorflow.agree import agree

raw = tf.raw_ops
X = np.array([[1.0, 0.0, 3.0], [4.0, -5.0, 6.0], [7.0, 8.0, 9.0]], np.float32)
ROWS = np.array([[0], [2], [0]], np.int32)
CELLS = np.array([[0, 1], [2, 2], [0, 1], [1, 0]], np.int32)
NEW = np.array([[1.0, 2.0, 3.0], [7.0, 0.0, -1.0], [1.0, 5.0, 0.0]], np.float32)
ONE = np.array([0.0, 9.0, 2.0, 4.0], np.float32)
WRITES = [
    tf.tensor_scatter_nd_add,
    tf.tensor_scatter_nd_sub,
    tf.tensor_scatter_nd_max,
    tf.tensor_scatter_nd_min,
]


@pytest.mark.parametrize("function", WRITES)
def test_writes(function):
    agree(function, X, ROWS, NEW)
    agree(function, X, CELLS, ONE)
    agree(function, X.astype(np.int32), CELLS, ONE.astype(np.int32))
    agree(function, X, ROWS[:0], NEW[:0])


def test_update():
    agree(tf.tensor_scatter_nd_update, X, ROWS[:2], NEW[:2])
    agree(tf.tensor_scatter_nd_update, X > 2, CELLS[1:], ONE[1:] > 3)


def test_scatter_nd():
    agree(lambda i, v: tf.scatter_nd(i, v, [4, 3]), ROWS, NEW)
    agree(lambda i, v: tf.scatter_nd(i, v, [3, 3]), CELLS, ONE)
    agree(lambda i, v: tf.scatter_nd(i, v, [3, 3]), CELLS, ONE > 3, grad=False)
    agree(lambda x, i, v: raw.ScatterNdNonAliasingAdd(input=x, indices=i, updates=v), X, ROWS, NEW)


@pytest.mark.parametrize("op", [raw.TensorScatterUpdate, raw.TensorScatterAdd])
def test_positions_outside(op):
    bad = np.array([[0, 1], [3, 0], [0, -1], [1, 1]], np.int32)
    ignore = lambda x, i, v: op(tensor=x, indices=i, updates=v, bad_indices_policy="IGNORE")
    agree(ignore, X, bad, ONE, grad=False)


@pytest.mark.parametrize("op", [raw.InplaceUpdate, raw.InplaceAdd, raw.InplaceSub])
def test_inplace(op):
    rows = np.array([1, -1], np.int32)
    agree(lambda x, i, v: op(x=x, i=i, v=v), X, rows, NEW[:2], grad=False)
