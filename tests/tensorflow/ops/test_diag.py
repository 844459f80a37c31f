"""Diagonals and bands of matrices."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tensorflow.agree import assert_agrees

pytestmark = pytest.mark.sample(every=10)

raw = tf.raw_ops
X = np.arange(1, 31, dtype=np.float32).reshape(2, 3, 5)
V = np.array([[1.0, np.nan, 3.0], [-0.0, np.inf, 6.0]], np.float32)
BANDS = [
    (0, "LEFT_RIGHT"), (2, "LEFT_RIGHT"), (-1, "LEFT_RIGHT"), ((-1, 1), "LEFT_RIGHT"),
    ((-1, 1), "RIGHT_LEFT"), ((-2, 2), "LEFT_LEFT"), ((-2, 2), "RIGHT_RIGHT"),
    ((1, 2), "RIGHT_LEFT"), ((1, 2), "LEFT_RIGHT"), ((-2, -1), "LEFT_RIGHT"),
    ((-2, 0), "LEFT_LEFT"),
]  # fmt: skip


@pytest.mark.parametrize("x", [X, np.moveaxis(X, 1, 2)], ids=["wide", "tall"])
@pytest.mark.parametrize("k, align", BANDS, ids=str)
def test_diagonals(k, align, x):
    """A part, put back into another matrix, and a matrix of its own made of it."""
    how = {"k": k, "align": align}

    def all_three(x, d):
        read = tf.linalg.diag_part(x, **how, padding_value=9)
        return read, tf.linalg.set_diag(x, d, **how), tf.linalg.diag(d, **how, padding_value=9)

    assert_agrees(all_three, -x, tf.linalg.diag_part(x, **how).numpy())


@pytest.mark.parametrize("rows, columns", [(-1, 5), (5, -1), (3, 6), (-1, -1)])
def test_sizes(rows, columns):
    sizes = {"num_rows": rows, "num_cols": columns}
    assert_agrees(lambda d: tf.linalg.diag(d, k=1, **sizes), V)
    assert_agrees(lambda d: tf.linalg.diag(d, k=(0, 1), **sizes), V)


@pytest.mark.parametrize("k", [1, (-1, 1)])
def test_version_two(k):
    def all_three(x, d):
        read = raw.MatrixDiagPartV2(input=x, k=k, padding_value=7.0)
        matrix = raw.MatrixDiagV2(diagonal=d, k=k, num_rows=3, num_cols=5, padding_value=1.0)
        return read, raw.MatrixSetDiagV2(input=x, diagonal=d, k=k), matrix

    assert_agrees(all_three, X, raw.MatrixDiagPartV2(input=X, k=k, padding_value=0.0).numpy())


def test_version_one():
    assert_agrees(lambda x: raw.MatrixDiagPart(input=x), X)
    assert_agrees(lambda d: raw.MatrixDiag(diagonal=d), V)
    assert_agrees(lambda x, d: raw.MatrixSetDiag(input=x, diagonal=d), X, V)
    assert_agrees(lambda x: raw.MatrixDiag(diagonal=x), V > 0)


def test_tensor_diag():
    for x in (V, V[0], np.arange(4)):
        assert_agrees(tf.linalg.tensor_diag, x)
    assert_agrees(tf.linalg.tensor_diag_part, np.arange(36, dtype=np.float32).reshape(2, 3, 2, 3))


@pytest.mark.parametrize("band", [(0, 0), (-1, 1), (1, -1), (2, 0), (-1, -1)])
def test_band_part(band):
    assert_agrees(lambda x: tf.linalg.band_part(x, *band), X)
    assert_agrees(lambda x, a, b: tf.linalg.band_part(x, a, b), X, *map(np.int32, band))
    assert_agrees(lambda x: tf.linalg.band_part(x, *band), V)
