"""Cross entropy and CTC."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import anyjax
from anyjax.errors import Unsupported
from tests.tensorflow.agree import assert_agrees

pytestmark = pytest.mark.sample(every=10)

# Cross entropy: both outputs, broadcasting, labels that are no class.


RNG = np.random.default_rng(1)
X = RNG.standard_normal((4, 5)).astype(np.float32)
LABELS = np.array([0, 4, 2, 2], np.int32)
raw = tf.raw_ops


def test_dense():
    labels = tf.nn.softmax(X[::-1]).numpy()
    assert_agrees(lambda x, y: raw.SoftmaxCrossEntropyWithLogits(features=x, labels=y).loss, X, X)
    run = lambda x: raw.SoftmaxCrossEntropyWithLogits(features=x, labels=labels)
    assert_agrees(run, X)
    assert_agrees(lambda y: raw.SoftmaxCrossEntropyWithLogits(features=X, labels=y), X, grad=False)
    assert_agrees(lambda x, y: tf.nn.softmax_cross_entropy_with_logits(y, x), X, labels)


def test_dense_broadcasts():
    run = lambda x, y: raw.SoftmaxCrossEntropyWithLogits(features=x, labels=y)
    assert_agrees(run, X, X[:1], grad=False)
    assert_agrees(run, X[:1], X[:, :1], grad=False)


def test_sparse():
    run = lambda x: raw.SparseSoftmaxCrossEntropyWithLogits(features=x, labels=LABELS)
    assert_agrees(run, X)
    assert_agrees(lambda x, y: tf.nn.sparse_softmax_cross_entropy_with_logits(y, x), X, LABELS)
    assert_agrees(
        lambda x, y: tf.nn.sparse_softmax_cross_entropy_with_logits(y, x),
        X,
        LABELS.astype(np.int64),
    )
    half = X.astype(np.float16)
    assert_agrees(lambda x, y: tf.nn.sparse_softmax_cross_entropy_with_logits(y, x), half, LABELS)


def test_infinite_logits():
    odd = X.copy()
    odd[:, 1] = -np.inf
    assert_agrees(
        lambda x, y: tf.nn.sparse_softmax_cross_entropy_with_logits(y, x), odd, LABELS, vmap=False
    )
    one_hot = np.eye(5, dtype=np.float32)[LABELS]
    assert_agrees(
        lambda x: raw.SoftmaxCrossEntropyWithLogits(features=x, labels=one_hot), odd, grad=False
    )


def test_labels_that_are_no_class():
    run = lambda x, y: raw.SparseSoftmaxCrossEntropyWithLogits(features=x, labels=y)
    model = anyjax.from_tensorflow(run, X, LABELS)
    loss, slope = model(X, np.array([0, -1, 5, 2], np.int32))
    assert np.isnan(loss).tolist() == [False, True, True, False]
    assert np.isnan(slope).all(1).tolist() == [False, True, True, False]
    half = lambda x: model.apply(model.params, x, LABELS)[0]
    assert np.isfinite(jax.jacfwd(half)(X)).all()


# CTC: repeated labels, texts that are too long.


LOGITS = RNG.standard_normal((6, 3, 5)).astype(np.float32)
INDICES = np.array([[0, 0], [0, 1], [0, 2], [1, 0], [2, 0], [2, 1]], np.int64)
VALUES = np.array([1, 1, 3, 2, 3, 1], np.int32)
TIMES = np.array([6, 4, 5], np.int32)


def ctc(x, indices, values, times, op=raw.CTCLoss, **how):
    return op(inputs=x, labels_indices=indices, labels_values=values, sequence_length=times, **how)


def test_loss():
    assert_agrees(lambda *xs: ctc(*xs).loss, LOGITS, INDICES, VALUES, TIMES)
    assert_agrees(lambda *xs: ctc(*xs), LOGITS, INDICES, VALUES, TIMES, grad=False, vmap=False)
    assert_agrees(lambda x, v, t: ctc(x, INDICES, v, t).loss, LOGITS, VALUES, TIMES)


def test_loss_with_the_first_class_as_blank():
    """TensorFlow has no kernel of it on CPUs: the first class is moved to the end."""
    model = anyjax.from_tensorflow(
        lambda *xs: ctc(*xs, op=raw.CTCLossV2).loss, LOGITS, INDICES, VALUES, TIMES
    )
    want = ctc(np.roll(LOGITS, -1, 2), INDICES, VALUES - 1, TIMES).loss
    np.testing.assert_allclose(model(LOGITS, INDICES, VALUES, TIMES), want, rtol=1e-5)


def test_too_long():
    """Texts with too many labels, and one that needs time between equal labels."""
    how = {"ignore_longer_outputs_than_inputs": True}
    for times, grad in (([2, 4, 5], True), ([3, 4, 5], False)):
        args = LOGITS, INDICES, VALUES, np.array(times, np.int32)
        assert_agrees(lambda *xs: ctc(*xs, **how).loss, *args, grad=grad, vmap=False)
    model = anyjax.from_tensorflow(lambda *xs: ctc(*xs).loss, LOGITS, INDICES, VALUES, TIMES)
    loss = model(LOGITS, INDICES, VALUES, np.array([2, 4, 5], np.int32))
    assert np.isinf(loss).tolist() == [True, False, False]


def test_of_tf_nn():
    def function(x, indices, values, times):
        labels = tf.SparseTensor(indices, values, (3, 3))
        return tf.compat.v1.nn.ctc_loss(labels, x, times)

    assert_agrees(function, LOGITS, INDICES, VALUES, TIMES, vmap=False)


def test_the_gradient_that_tensorflow_computes_beside_the_loss():
    """Nothing flows into its loop, whose own gradient is infinite where labels end early."""

    def function(x):
        labels, lengths = tf.constant([[1, 2], [2, 0]]), tf.constant([2, 1])
        return tf.nn.ctc_loss(labels, x, lengths, tf.constant([5, 4]))

    x = np.random.default_rng(0).standard_normal((5, 2, 4)).astype(np.float32)
    assert_agrees(function, x, vmap=False)


@pytest.mark.parametrize(
    "how", [{"preprocess_collapse_repeated": True}, {"ctc_merge_repeated": False}]
)
def test_other_ways_are_unsupported(how):
    with pytest.raises(Unsupported, match="CTC"):
        model = anyjax.from_tensorflow(lambda x: ctc(x, INDICES, VALUES, TIMES, **how), LOGITS)
        model(LOGITS)
