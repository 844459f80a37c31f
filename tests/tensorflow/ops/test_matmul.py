"""Products of matrices, and biases."""

import jax
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import anyjax
from tests.tensorflow.agree import assert_agrees

pytestmark = pytest.mark.sample(every=10)

R = tf.raw_ops
RNG = np.random.default_rng(0)
floats = lambda *shape: RNG.standard_normal(shape).astype(np.float32)
A, B = floats(3, 4), floats(4, 5)


def turned(x, turn):
    return np.swapaxes(x, -1, -2).copy() if turn else x


@pytest.mark.parametrize("a", [False, True])
@pytest.mark.parametrize("b", [False, True])
def test_matmul(a, b):
    function = lambda x, y: tf.matmul(x, y, transpose_a=a, transpose_b=b)
    model = assert_agrees(function, turned(A, a), turned(B, b))
    program = str(jax.make_jaxpr(lambda *xs: model.apply({}, *xs))(turned(A, a), turned(B, b)))
    assert "dot_general" in program and "transpose" not in program


@pytest.mark.parametrize("dtype", [np.int32, np.complex64, np.float16, ml_dtypes.bfloat16])
def test_dtypes(dtype):
    assert_agrees(tf.matmul, (A * 4).astype(dtype), (B * 4).astype(dtype))


SHAPES = [
    ((2, 3, 4), (2, 4, 5)), ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)), ((2, 1, 3, 4), (6, 4, 5)),
    ((0, 3, 4), (0, 4, 5)), ((2, 3, 0), (2, 0, 5)), ((1, 3, 4), (2, 4, 5)),
]  # fmt: skip


@pytest.mark.parametrize(("x", "y"), SHAPES)
@pytest.mark.parametrize("adjoint", [(False, False), (True, False), (False, True), (True, True)])
def test_batches(x, y, adjoint):
    x, y = turned(floats(*x), adjoint[0]), turned(floats(*y), adjoint[1])
    function = lambda x, y: R.BatchMatMulV2(x=x, y=y, adj_x=adjoint[0], adj_y=adjoint[1])
    assert_agrees(function, x, y, vmap=x.size > 0)


def test_adjoints_of_complex_batches():
    z = (floats(2, 3, 4) + 1j * floats(2, 3, 4)).astype(np.complex64)
    assert_agrees(lambda x, y: R.BatchMatMul(x=x, y=y, adj_y=True), z, z)


def test_a_batch_with_a_wider_result():
    x, y = RNG.integers(-100, 100, (2, 3, 4), np.int8), RNG.integers(-100, 100, (4, 5), np.int8)
    assert_agrees(lambda x, y: R.BatchMatMulV3(x=x, y=y, Tout=tf.int32), x, y)


def test_dense_arrays_with_many_zeros():
    assert_agrees(lambda x, y: R.SparseMatMul(a=x, b=y, a_is_sparse=True), A * (A > 0), B)


EINSUMS = {
    "ij,jk->ik": (A, B), "bij,bjk->bik": (floats(2, 3, 4), floats(2, 4, 5)),
    "...ij,jk->...ik": (floats(2, 3, 4), B), "i,j->ij": (A[0], B[0]), "ij->ji": (A,),
    "ij->": (A,), "ii->i": (A[:, :3],), "ii->": (A[:, :3],), "i->ii": (A[0],),
    "...ij,...jk->...ik": (floats(2, 1, 3, 4), floats(6, 4, 5)),
    "bhqd,bkhd->bhqk": (floats(2, 3, 4, 5), floats(2, 6, 3, 5)), "i...->...": (A,),
}  # fmt: skip


@pytest.mark.parametrize("equation", EINSUMS)
def test_einsum(equation):
    assert_agrees(lambda *xs: R.Einsum(inputs=xs, equation=equation), *EINSUMS[equation])


def test_einsum_of_three_and_of_complex_numbers():
    assert_agrees(lambda *xs: tf.einsum("ij,jk,kl->il", *xs), A, B, B.T.copy())
    assert_agrees(
        lambda *xs: tf.einsum("ij,jk->ik", *xs), A.astype(np.complex64) * 1j, B.astype(np.complex64)
    )


@pytest.mark.parametrize(
    "function", [tf.tensordot, lambda x, y, axes: tf.tensordot(x, y, [[1], [0]])]
)
def test_tensordot(function):
    assert_agrees(lambda x, y: function(x, y, 1), A, B)
    assert anyjax.from_tensorflow(tf.linalg.matvec)(A, B[:, 0]).shape == (3,)


# Biases.


X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize("layout, count", [("NHWC", 4), ("NCHW", 3)])
def test_bias_add(layout, count):
    b = np.arange(count, dtype=np.float32)
    assert_agrees(lambda x, b: tf.nn.bias_add(x, b, data_format=layout), X, b)
    assert_agrees(lambda g: tf.raw_ops.BiasAddGrad(out_backprop=g, data_format=layout), X)


def test_first_version():
    assert_agrees(lambda x, b: tf.raw_ops.BiasAddV1(value=x, bias=b), X, X[0, 0])
    assert_agrees(
        lambda x, b: tf.nn.bias_add(x, b), X.astype(np.int32), np.arange(4, dtype=np.int32)
    )
