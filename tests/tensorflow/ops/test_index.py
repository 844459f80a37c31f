"""Reading at positions, and writing to them."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import anyjax
from tests.tensorflow.agree import assert_agrees

pytestmark = pytest.mark.sample(every=10)

raw = tf.raw_ops
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
IDS = np.array([[0, 1], [1, 1]], np.int32)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("ids", [IDS, IDS[0], np.int32(1), IDS[:0]])
def test_gather(axis, ids):
    assert_agrees(lambda x, i: tf.gather(x, i, axis=axis), X, ids)
    assert_agrees(lambda x: tf.gather(x, ids, axis=axis), X)


@pytest.mark.parametrize("axis, batch_dims", [(1, 1), (2, 1), (-1, 2), (2, -1)])
def test_batches(axis, batch_dims):
    ids = np.array([[0, 1, 1], [1, 1, 0]], np.int32)
    assert_agrees(lambda x, i: tf.gather(x, i, axis=axis, batch_dims=batch_dims), X, ids)


@pytest.mark.parametrize("array", [X.astype(np.int32), X > 4, X * (1 + 2j), X.astype(np.float16)])
def test_other_dtypes(array):
    assert_agrees(lambda x, i: tf.gather(x, i), array, IDS.astype(np.int64))
    assert_agrees(lambda x, i: tf.gather_nd(x, i), array, IDS)


def test_gather_v1():
    assert_agrees(lambda x, i: raw.Gather(params=x, indices=i), X, IDS)


@pytest.mark.parametrize("ids", [IDS, IDS[..., None], np.array([1, 2, 3])])
def test_gather_nd(ids):
    assert_agrees(lambda x, i: tf.gather_nd(x, i), X, ids, grad=ids.ndim > 1)  # TensorFlow's fails
    assert_agrees(lambda x: tf.gather_nd(x, ids), X, grad=ids.ndim > 1)


def test_gather_nd_modes():
    assert_agrees(lambda x: tf.gather_nd(x, IDS[:, :0]), X, grad=False)  # TensorFlow's fails
    assert_agrees(
        lambda x, i: tf.gather_nd(x, i, batch_dims=1), X, np.array([[[0], [2]], [[1], [1]]])
    )
    ids = np.array([[0, 5], [1, 1], [-1, 0]], np.int32)
    assert_agrees(
        lambda x, i: raw.GatherNd(params=x, indices=i, bad_indices_policy="IGNORE"), X, ids
    )


def test_outside():
    """TensorFlow raises."""
    ids = np.array([1, 2, -1], np.int32)
    for function in (tf.gather, lambda x, i: tf.gather_nd(x, i[:, None])):
        model = anyjax.from_tensorflow(function, X, ids)
        np.testing.assert_array_equal(np.isnan(model(X, ids))[:, 0, 0], [False, True, True])
        integers = X.astype(np.int32)
        got = anyjax.from_tensorflow(function, integers, ids)(integers, ids)
        np.testing.assert_array_equal(got, integers[[1, 1, 0]])
    slope = jax.grad(lambda x: model.apply({}, x, ids).sum())(X)
    np.testing.assert_array_equal(slope[:, 0, 0], [0, 1])


def test_known_positions_need_no_check():
    model = anyjax.from_tensorflow(lambda x: tf.gather(x, [1, 0]), X)
    assert "PROMISE" in str(jax.make_jaxpr(lambda x: model.apply({}, x))(X))
    model = anyjax.from_tensorflow(lambda x: tf.gather(x, 1, axis=1), X)
    assert "gather" not in str(jax.make_jaxpr(lambda x: model.apply({}, x))(X))


def test_permutations():
    order = np.array([2, 0, 3, 1], np.int32)
    assert_agrees(tf.math.invert_permutation, order)
    assert_agrees(lambda i: tf.unravel_index(i, [3, 4]), np.array([5, 11, 0], np.int32))
    assert_agrees(lambda i: tf.unravel_index(i, [3, 4]), np.int32(7))


# Writing to positions.


GRID = np.array([[1.0, 0.0, 3.0], [4.0, -5.0, 6.0], [7.0, 8.0, 9.0]], np.float32)
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
    assert_agrees(function, GRID, ROWS, NEW)
    assert_agrees(function, GRID, CELLS, ONE)
    assert_agrees(function, GRID.astype(np.int32), CELLS, ONE.astype(np.int32))
    assert_agrees(function, GRID, ROWS[:0], NEW[:0])


def test_update():
    assert_agrees(tf.tensor_scatter_nd_update, GRID, ROWS[:2], NEW[:2])
    assert_agrees(tf.tensor_scatter_nd_update, GRID > 2, CELLS[1:], ONE[1:] > 3)


def test_scatter_nd():
    assert_agrees(lambda i, v: tf.scatter_nd(i, v, [4, 3]), ROWS, NEW)
    assert_agrees(lambda i, v: tf.scatter_nd(i, v, [3, 3]), CELLS, ONE)
    assert_agrees(lambda i, v: tf.scatter_nd(i, v, [3, 3]), CELLS, ONE > 3, grad=False)
    assert_agrees(
        lambda x, i, v: raw.ScatterNdNonAliasingAdd(input=x, indices=i, updates=v), GRID, ROWS, NEW
    )


@pytest.mark.parametrize("op", [raw.TensorScatterUpdate, raw.TensorScatterAdd])
def test_positions_outside(op):
    bad = np.array([[0, 1], [3, 0], [0, -1], [1, 1]], np.int32)
    ignore = lambda x, i, v: op(tensor=x, indices=i, updates=v, bad_indices_policy="IGNORE")
    assert_agrees(ignore, GRID, bad, ONE, grad=False)


@pytest.mark.parametrize("op", [raw.InplaceUpdate, raw.InplaceAdd, raw.InplaceSub])
def test_inplace(op):
    rows = np.array([1, -1], np.int32)
    assert_agrees(lambda x, i, v: op(x=x, i=i, v=v), GRID, rows, NEW[:2], grad=False)
