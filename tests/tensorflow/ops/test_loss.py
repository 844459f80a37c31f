"""Cross entropy: both outputs, broadcasting, labels that are no class."""

import jax
import numpy as np
import tensorflow as tf

import tojax
from tests.tensorflow.agree import agree

RNG = np.random.default_rng(1)
X = RNG.standard_normal((4, 5)).astype(np.float32)
LABELS = np.array([0, 4, 2, 2], np.int32)
raw = tf.raw_ops


def test_dense():
    labels = tf.nn.softmax(X[::-1]).numpy()
    agree(lambda x, y: raw.SoftmaxCrossEntropyWithLogits(features=x, labels=y).loss, X, X)
    run = lambda x: raw.SoftmaxCrossEntropyWithLogits(features=x, labels=labels)
    agree(run, X)
    agree(lambda y: raw.SoftmaxCrossEntropyWithLogits(features=X, labels=y), X, grad=False)
    agree(lambda x, y: tf.nn.softmax_cross_entropy_with_logits(y, x), X, labels)


def test_dense_broadcasts():
    run = lambda x, y: raw.SoftmaxCrossEntropyWithLogits(features=x, labels=y)
    agree(run, X, X[:1], grad=False)
    agree(run, X[:1], X[:, :1], grad=False)


def test_sparse():
    run = lambda x: raw.SparseSoftmaxCrossEntropyWithLogits(features=x, labels=LABELS)
    agree(run, X)
    agree(lambda x, y: tf.nn.sparse_softmax_cross_entropy_with_logits(y, x), X, LABELS)
    agree(
        lambda x, y: tf.nn.sparse_softmax_cross_entropy_with_logits(y, x),
        X,
        LABELS.astype(np.int64),
    )
    half = X.astype(np.float16)
    agree(lambda x, y: tf.nn.sparse_softmax_cross_entropy_with_logits(y, x), half, LABELS)


def test_infinite_logits():
    odd = X.copy()
    odd[:, 1] = -np.inf
    agree(
        lambda x, y: tf.nn.sparse_softmax_cross_entropy_with_logits(y, x), odd, LABELS, vmap=False
    )
    one_hot = np.eye(5, dtype=np.float32)[LABELS]
    agree(lambda x: raw.SoftmaxCrossEntropyWithLogits(features=x, labels=one_hot), odd, grad=False)


def test_labels_that_are_no_class():
    run = lambda x, y: raw.SparseSoftmaxCrossEntropyWithLogits(features=x, labels=y)
    model = tojax.from_tensorflow(run, X, LABELS)
    loss, slope = model(X, np.array([0, -1, 5, 2], np.int32))
    assert np.isnan(loss).tolist() == [False, True, True, False]
    assert np.isnan(slope).all(1).tolist() == [False, True, True, False]
    half = lambda x: model.apply(model.params, x, LABELS)[0]
    assert np.isfinite(jax.jacfwd(half)(X)).all()
