"""Eigenvalues, singular values and functions of matrices."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tensorflow.agree import agree

R = tf.raw_ops
RNG = np.random.default_rng(0)
floats = lambda *shape: RNG.standard_normal(shape).astype(np.float32)
A = floats(2, 3, 3)
S = A + A.swapaxes(-1, -2)
Z = (A + 1j * floats(2, 3, 3)).astype(np.complex64)
SPD = A @ A.swapaxes(-1, -2) + np.eye(3, dtype=np.float32)


def without_signs(u, *rest):
    """What does not depend on the phase of each vector."""
    return tf.abs(u), *rest


@pytest.mark.parametrize("x", [S, S + np.triu(A, 1), Z + Z.conj().swapaxes(-1, -2)])
def test_self_adjoint(x):
    agree(tf.linalg.eigvalsh, x, grad=x.dtype.kind == "f")
    agree(lambda x: without_signs(*tf.linalg.eigh(x)[::-1]), x, grad=x.dtype.kind == "f", depth=512)


@pytest.mark.parametrize("shape", [(2, 3, 3), (2, 4, 3), (2, 3, 4)])
@pytest.mark.parametrize("full", [False, True])
def test_singular_values(shape, full):
    x = floats(*shape)
    agree(lambda x: tf.linalg.svd(x, compute_uv=False), x)
    agree(lambda x: R.Svd(input=x, full_matrices=full)[0], x, grad=False)

    def function(x):
        s, u, v = tf.linalg.svd(x, full_matrices=full)
        return s, tf.abs(u), tf.abs(v)

    agree(function, x, grad=not full, depth=1024)


def test_general():
    """Up to the order of the values and the size of the vectors."""

    def function(x):
        e, v = tf.linalg.eig(x)
        return tf.reduce_sum(e**3, -1), tf.abs(tf.reduce_sum(v * tf.math.conj(v), -2))

    agree(function, A, grad=False, depth=512)
    agree(lambda x: tf.reduce_sum(tf.linalg.eigvals(x) ** 3, -1), A, grad=False, depth=512)


def test_square_roots():
    agree(tf.linalg.sqrtm, SPD, depth=1024)
    agree(tf.linalg.sqrtm, SPD.astype(np.complex64), depth=1024, grad=False)


def test_exponential():
    agree(tf.linalg.expm, A, depth=512)


@pytest.mark.parametrize("lower", [True, False])
def test_operators_of_xla(lower):
    """TensorFlow computes them where it compiles, and has no gradients for them."""
    import importlib

    xla = importlib.import_module("tensorflow.compiler.tf2xla.python.xla")
    compiled = lambda f: tf.function(f, jit_compile=True)
    agree(compiled(lambda x: xla.svd(x, 30, 1e-6)[0]), floats(3, 4), grad=False, depth=1024)
    x = S[0] + np.triu(A[0], 1)  # only one triangle is read

    def rebuilt(x):
        w, v = xla.self_adjoint_eig(x, lower, 30, 1e-6)
        return w, tf.matmul(v * w[None], v, transpose_b=True)

    agree(compiled(rebuilt), x, grad=False, depth=4096)
