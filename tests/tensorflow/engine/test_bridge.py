"""Operators without a row, through TensorFlow's bridge to XLA."""

import numpy as np
import pytest
import tensorflow as tf

import anyjax
from anyjax.tensorflow.core.schema import table
from tests.tensorflow.agree import assert_agrees

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


@pytest.fixture
def without(monkeypatch):
    """Takes rows out of the table."""
    table.find("Sin")
    return lambda *names: [monkeypatch.delitem(table._rows, name) for name in names]


def test_through_the_bridge(without):
    len(table)  # all rows are read
    without("Softmax", "Cumsum", "Sin")
    assert_agrees(tf.nn.softmax, X)
    assert_agrees(lambda x: tf.cumsum(tf.sin(x), 1), X)


def test_what_xla_does_not_know(without):
    len(table)
    without("MatrixDeterminant")
    model = anyjax.from_tensorflow(tf.linalg.det, X[:, :3])
    with pytest.raises(anyjax.errors.MissingOps, match="MatrixDeterminant") as caught:
        model(X[:, :3])
    assert "@anyjax.tensorflow.lowers('MatrixDeterminant')" in str(caught.value)
