"""CTC: repeated labels, texts that are too long."""

import numpy as np
import pytest
import tensorflow as tf

import tojax
from tests.tensorflow.agree import agree
from tojax.errors import Unsupported

RNG = np.random.default_rng(1)
X = RNG.standard_normal((6, 3, 5)).astype(np.float32)
INDICES = np.array([[0, 0], [0, 1], [0, 2], [1, 0], [2, 0], [2, 1]], np.int64)
VALUES = np.array([1, 1, 3, 2, 3, 1], np.int32)
TIMES = np.array([6, 4, 5], np.int32)
raw = tf.raw_ops


def run(x, indices, values, times, op=raw.CTCLoss, **how):
    return op(inputs=x, labels_indices=indices, labels_values=values, sequence_length=times, **how)


def test_loss():
    agree(lambda *xs: run(*xs).loss, X, INDICES, VALUES, TIMES)
    agree(lambda *xs: run(*xs), X, INDICES, VALUES, TIMES, grad=False, vmap=False)
    agree(lambda x, v, t: run(x, INDICES, v, t).loss, X, VALUES, TIMES)


def test_loss_with_the_first_class_as_blank():
    """TensorFlow has no kernel of it on CPUs: the first class is moved to the end."""
    model = tojax.from_tensorflow(
        lambda *xs: run(*xs, op=raw.CTCLossV2).loss, X, INDICES, VALUES, TIMES
    )
    want = run(np.roll(X, -1, 2), INDICES, VALUES - 1, TIMES).loss
    np.testing.assert_allclose(model(X, INDICES, VALUES, TIMES), want, rtol=1e-5)


def test_too_long():
    """Texts with too many labels, and one that needs time between equal labels."""
    how = {"ignore_longer_outputs_than_inputs": True}
    for times, grad in (([2, 4, 5], True), ([3, 4, 5], False)):
        given = X, INDICES, VALUES, np.array(times, np.int32)
        agree(lambda *xs: run(*xs, **how).loss, *given, grad=grad, vmap=False)
    model = tojax.from_tensorflow(lambda *xs: run(*xs).loss, X, INDICES, VALUES, TIMES)
    loss = model(X, INDICES, VALUES, np.array([2, 4, 5], np.int32))
    assert np.isinf(loss).tolist() == [True, False, False]


def test_of_tf_nn():
    def function(x, indices, values, times):
        labels = tf.SparseTensor(indices, values, (3, 3))
        return tf.compat.v1.nn.ctc_loss(labels, x, times)

    agree(function, X, INDICES, VALUES, TIMES, vmap=False)


@pytest.mark.parametrize(
    "how", [{"preprocess_collapse_repeated": True}, {"ctc_merge_repeated": False}]
)
def test_other_ways_are_unsupported(how):
    with pytest.raises(Unsupported, match="CTC"):
        model = tojax.from_tensorflow(lambda x: run(x, INDICES, VALUES, TIMES, **how), X)
        model(X)
