"""Reductions of the rows that have the same number."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import anyjax
from anyjax.errors import DataDependent
from tests.tensorflow.agree import assert_agrees

pytestmark = pytest.mark.sample(every=10)

raw = tf.raw_ops
X = np.array([[1, 0], [1, 5], [-2, 0], [4, 4], [4, 0]], np.float32)
IDS = np.array([0, 0, 2, 2, 2], np.int32)
LOOSE = np.array([3, 0, -1, 3, 0], np.int32)
SORTED = [
    tf.math.segment_sum, tf.math.segment_mean, tf.math.segment_prod, tf.math.segment_max,
    tf.math.segment_min,
]  # fmt: skip
UNSORTED = [
    tf.math.unsorted_segment_sum, tf.math.unsorted_segment_prod, tf.math.unsorted_segment_max,
    tf.math.unsorted_segment_min,
]  # fmt: skip


@pytest.mark.parametrize("function", SORTED)
def test_sorted(function):
    assert_agrees(lambda x: function(x, IDS), X)
    assert_agrees(lambda x: function(x, IDS), X.astype(np.int32) * 3)
    assert_agrees(lambda x: function(x, IDS[:0]), X[:0])
    model = anyjax.from_tensorflow(function, X, IDS)
    with pytest.raises(DataDependent, match="segment_ids of Segment"):
        jax.jit(lambda ids: model.apply({}, X, ids))(IDS)
    np.testing.assert_allclose(model.apply({}, X, IDS), function(X, IDS))


@pytest.mark.parametrize("function", UNSORTED)
def test_unsorted(function):
    assert_agrees(lambda x, i: function(x, i, 5), X, LOOSE)
    assert_agrees(lambda x, i: function(x, i, 4), X.astype(np.int32), LOOSE)
    assert_agrees(lambda x, i: function(x, i, 3), X.reshape(5, 2), np.array([[0, 2]] * 5, np.int32))
    assert_agrees(lambda x, i: function(x, i, 2), X[:0], LOOSE[:0])


@pytest.mark.parametrize("how", ["Sum", "Prod", "Max", "Min"])
def test_number_given(how):
    """TensorFlow has kernels for it on accelerators alone: they do as those for unsorted ones."""
    call = lambda op: lambda x, i: op(data=x, segment_ids=i, num_segments=4)
    model = anyjax.from_tensorflow(call(getattr(raw, f"Segment{how}V2")), X, IDS)
    want = call(getattr(raw, f"UnsortedSegment{how}"))(X, IDS)
    np.testing.assert_allclose(model(X, IDS), want)


@pytest.mark.parametrize("how", ["Sum", "Mean", "SqrtN"])
def test_sparse(how):
    op, counted = (getattr(raw, f"SparseSegment{how}{x}") for x in ("", "WithNumSegments"))
    at = np.array([4, 0, 1, 1], np.int32)
    ids = np.array([0, 0, 2, 2], np.int32)
    assert_agrees(lambda x, i: op(data=x, indices=i, segment_ids=ids), X, at)
    with_count = lambda x, i, s: counted(data=x, indices=i, segment_ids=s, num_segments=4)
    assert_agrees(with_count, X, at, ids)
    grad = getattr(raw, f"SparseSegment{how}Grad")
    back = lambda g, i, s: grad(grad=g, indices=i, segment_ids=s, output_dim0=6)
    assert_agrees(back, X[:3], at, ids, grad=False)
    grad_v2 = getattr(raw, f"SparseSegment{how}GradV2")
    back = lambda g, s: grad_v2(grad=g, indices=at, segment_ids=s, dense_output_dim0=6)
    assert_agrees(back, X[:3], ids, grad=False)


@pytest.mark.parametrize("function", UNSORTED[1:])
def test_forward_mode(function):
    """The derivative of products and extremes, against finite differences of TensorFlow."""
    call = lambda x: function(x, LOOSE, 4)
    model = anyjax.from_tensorflow(call, X)
    step = np.array([[1, 0], [0, 2], [1, 1], [-1, 0], [0, 3]], np.float32)
    smooth = X + np.float32([[0.5], [0.25], [0], [0], [0.125]])
    _, mine = jax.jvp(lambda x: model.apply({}, x), (smooth,), (step,))
    h = np.float32(2**-8)
    slope = (call(smooth + h * step) - call(smooth - h * step)) / (2 * h)
    np.testing.assert_allclose(mine, slope, atol=1e-3)
