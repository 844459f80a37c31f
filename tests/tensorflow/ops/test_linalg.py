"""Linear systems, eigenvalues, singular values, functions of matrices."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tensorflow.agree import assert_agrees

pytestmark = pytest.mark.sample(every=10)

R = tf.raw_ops
RNG = np.random.default_rng(0)
floats = lambda *shape: RNG.standard_normal(shape).astype(np.float32)
A = floats(2, 3, 3) + 3 * np.eye(3, dtype=np.float32)
B = floats(2, 3, 2)
C = (A + 1j * floats(2, 3, 3)).astype(np.complex64)
SPD = A @ A.swapaxes(-1, -2)


def test_cholesky():
    assert_agrees(tf.linalg.cholesky, SPD)
    assert_agrees(tf.linalg.cholesky, SPD + np.triu(floats(3, 3), 1))  # not read
    assert_agrees(tf.linalg.cholesky, C @ C.conj().swapaxes(-1, -2))


def test_cholesky_grad():
    assert_agrees(lambda l, g: R.CholeskyGrad(l=l, grad=g), np.linalg.cholesky(SPD), A, grad=False)


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("a", [A, C])
def test_solutions(a, adjoint):
    b = B.astype(a.dtype)
    assert_agrees(lambda a, b: tf.linalg.solve(a, b, adjoint=adjoint), a, b)
    assert_agrees(lambda a: tf.linalg.inv(a, adjoint=adjoint), a)


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("lower", [False, True])
def test_triangular_solutions(lower, adjoint):
    solve = lambda a, b: tf.linalg.triangular_solve(a, b, lower, adjoint)
    assert_agrees(solve, A, B)
    assert_agrees(solve, A, B[0])
    assert_agrees(solve, C, C)


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("lower", [False, True])
def test_banded_solutions(lower, adjoint):
    bands = floats(2, 2, 4) + 3
    solve = lambda a, b: R.BandedTriangularSolve(matrix=a, rhs=b, lower=lower, adjoint=adjoint)
    assert_agrees(solve, bands, floats(2, 4, 2), grad=False)


@pytest.mark.parametrize("a", [A, C, A[0]])
def test_determinants(a):
    grad = a.dtype.kind == "f"  # TensorFlow does not conjugate the determinant
    assert_agrees(tf.linalg.det, a, grad=grad)
    assert_agrees(lambda x: tf.linalg.slogdet(x)[1], a, grad=grad)
    assert_agrees(lambda x: R.LogMatrixDeterminant(input=x), a, grad=False)


@pytest.mark.parametrize("shape", [(2, 5, 3), (2, 3, 5)])
@pytest.mark.parametrize("fast", [True, False])
def test_least_squares(shape, fast):
    a, b = floats(*shape), floats(2, shape[1], 2)
    assert_agrees(
        lambda a, b: tf.linalg.lstsq(a, b, 0.1 if fast else 0.0, fast), a, b, grad=fast, depth=512
    )


def test_lu():
    assert_agrees(lambda a: tf.linalg.lu(a), A, grad=False)
    assert_agrees(lambda a: R.Lu(input=a, output_idx_type=tf.int64), C, grad=False)


@pytest.mark.parametrize("shape", [(2, 5, 3), (2, 3, 3), (2, 3, 5)])
@pytest.mark.parametrize("full", [False, True])
def test_qr(shape, full):
    assert_agrees(
        lambda a: tf.linalg.qr(a, full), floats(*shape), grad=shape == (2, 5, 3) and not full
    )


def test_tridiagonal():
    diagonals, rhs = floats(2, 3, 4) + np.array([0, 4, 0], np.float32)[:, None], floats(2, 4, 2)
    assert_agrees(lambda d, b: tf.linalg.tridiagonal_solve(d, b, "compact"), diagonals, rhs)
    how = {"diagonals_format": "compact", "partial_pivoting": False}
    assert_agrees(lambda d, b: tf.linalg.tridiagonal_solve(d, b, **how), diagonals, rhs)
    assert_agrees(lambda d, b: tf.linalg.tridiagonal_matmul(d, b, "compact"), diagonals, rhs)


# Eigenvalues, singular values and functions of matrices.


MATRIX = floats(2, 3, 3)
S = MATRIX + MATRIX.swapaxes(-1, -2)
Z = (MATRIX + 1j * floats(2, 3, 3)).astype(np.complex64)
DEFINITE = MATRIX @ MATRIX.swapaxes(-1, -2) + np.eye(3, dtype=np.float32)


def without_signs(u, *rest):
    """Removes the phase of each vector."""
    return tf.abs(u), *rest


@pytest.mark.parametrize("x", [S, S + np.triu(MATRIX, 1), Z + Z.conj().swapaxes(-1, -2)])
def test_self_adjoint(x):
    assert_agrees(tf.linalg.eigvalsh, x, grad=x.dtype.kind == "f")
    assert_agrees(
        lambda x: without_signs(*tf.linalg.eigh(x)[::-1]), x, grad=x.dtype.kind == "f", depth=512
    )


@pytest.mark.parametrize("shape", [(2, 3, 3), (2, 4, 3), (2, 3, 4)])
@pytest.mark.parametrize("full", [False, True])
def test_singular_values(shape, full):
    x = floats(*shape)
    assert_agrees(lambda x: tf.linalg.svd(x, compute_uv=False), x)
    assert_agrees(lambda x: R.Svd(input=x, full_matrices=full)[0], x, grad=False)

    def function(x):
        s, u, v = tf.linalg.svd(x, full_matrices=full)
        return s, tf.abs(u), tf.abs(v)

    assert_agrees(function, x, grad=not full, depth=1024)


def test_general():
    """Up to the order of the values and the size of the vectors."""

    def function(x):
        e, v = tf.linalg.eig(x)
        return tf.reduce_sum(e**3, -1), tf.abs(tf.reduce_sum(v * tf.math.conj(v), -2))

    assert_agrees(function, MATRIX, grad=False, depth=512)
    assert_agrees(
        lambda x: tf.reduce_sum(tf.linalg.eigvals(x) ** 3, -1), MATRIX, grad=False, depth=512
    )


def test_square_roots():
    assert_agrees(tf.linalg.sqrtm, DEFINITE, depth=1024)
    assert_agrees(tf.linalg.sqrtm, DEFINITE.astype(np.complex64), depth=1024, grad=False)


def test_exponential():
    assert_agrees(tf.linalg.expm, MATRIX, depth=512)


@pytest.mark.parametrize("lower", [True, False])
def test_operators_of_xla(lower):
    """TensorFlow computes them where it compiles, and has no gradients for them."""
    import importlib

    xla = importlib.import_module("tensorflow.compiler.tf2xla.python.xla")
    compiled = lambda f: tf.function(f, jit_compile=True)
    assert_agrees(compiled(lambda x: xla.svd(x, 30, 1e-6)[0]), floats(3, 4), grad=False, depth=1024)
    x = S[0] + np.triu(MATRIX[0], 1)  # only one triangle is read

    def rebuilt(x):
        w, v = xla.self_adjoint_eig(x, lower, 30, 1e-6)
        return w, tf.matmul(v * w[None], v, transpose_b=True)

    assert_agrees(compiled(rebuilt), x, grad=False, depth=4096)
