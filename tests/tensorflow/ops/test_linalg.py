"""Linear systems."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tensorflow.agree import agree

R = tf.raw_ops
RNG = np.random.default_rng(0)
floats = lambda *shape: RNG.standard_normal(shape).astype(np.float32)
A = floats(2, 3, 3) + 3 * np.eye(3, dtype=np.float32)
B = floats(2, 3, 2)
C = (A + 1j * floats(2, 3, 3)).astype(np.complex64)
SPD = A @ A.swapaxes(-1, -2)


def test_cholesky():
    agree(tf.linalg.cholesky, SPD)
    agree(tf.linalg.cholesky, SPD + np.triu(floats(3, 3), 1))  # not read
    agree(tf.linalg.cholesky, C @ C.conj().swapaxes(-1, -2))


def test_cholesky_grad():
    agree(lambda l, g: R.CholeskyGrad(l=l, grad=g), np.linalg.cholesky(SPD), A, grad=False)


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("a", [A, C])
def test_solutions(a, adjoint):
    b = B.astype(a.dtype)
    agree(lambda a, b: tf.linalg.solve(a, b, adjoint=adjoint), a, b)
    agree(lambda a: tf.linalg.inv(a, adjoint=adjoint), a)


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("lower", [False, True])
def test_triangular_solutions(lower, adjoint):
    solve = lambda a, b: tf.linalg.triangular_solve(a, b, lower, adjoint)
    agree(solve, A, B)
    agree(solve, A, B[0])
    agree(solve, C, C)


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("lower", [False, True])
def test_banded_solutions(lower, adjoint):
    bands = floats(2, 2, 4) + 3
    solve = lambda a, b: R.BandedTriangularSolve(matrix=a, rhs=b, lower=lower, adjoint=adjoint)
    agree(solve, bands, floats(2, 4, 2), grad=False)


@pytest.mark.parametrize("a", [A, C, A[0]])
def test_determinants(a):
    grad = a.dtype.kind == "f"  # TensorFlow does not conjugate the determinant
    agree(tf.linalg.det, a, grad=grad)
    agree(lambda x: tf.linalg.slogdet(x)[1], a, grad=grad)
    agree(lambda x: R.LogMatrixDeterminant(input=x), a, grad=False)


@pytest.mark.parametrize("shape", [(2, 5, 3), (2, 3, 5)])
@pytest.mark.parametrize("fast", [True, False])
def test_least_squares(shape, fast):
    a, b = floats(*shape), floats(2, shape[1], 2)
    agree(
        lambda a, b: tf.linalg.lstsq(a, b, 0.1 if fast else 0.0, fast), a, b, grad=fast, depth=512
    )


def test_lu():
    agree(lambda a: tf.linalg.lu(a), A, grad=False)
    agree(lambda a: R.Lu(input=a, output_idx_type=tf.int64), C, grad=False)


@pytest.mark.parametrize("shape", [(2, 5, 3), (2, 3, 3), (2, 3, 5)])
@pytest.mark.parametrize("full", [False, True])
def test_qr(shape, full):
    agree(lambda a: tf.linalg.qr(a, full), floats(*shape), grad=shape == (2, 5, 3) and not full)


def test_tridiagonal():
    diagonals, rhs = floats(2, 3, 4) + np.array([0, 4, 0], np.float32)[:, None], floats(2, 4, 2)
    agree(lambda d, b: tf.linalg.tridiagonal_solve(d, b, "compact"), diagonals, rhs)
    plain = {"diagonals_format": "compact", "partial_pivoting": False}
    agree(lambda d, b: tf.linalg.tridiagonal_solve(d, b, **plain), diagonals, rhs)
    agree(lambda d, b: tf.linalg.tridiagonal_matmul(d, b, "compact"), diagonals, rhs)
