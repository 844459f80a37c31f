"""Activations at their kinks, far from 0 and at NaN, and gradients of elementwise functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import anyjax
from tests.tensorflow.agree import assert_agrees

pytestmark = pytest.mark.sample(every=10)

X = np.array([[-100, -2, -0.5, -0.0, 0, 1e-4], [0.5, 1, 3, 6, 7, 100]], np.float32)
ODD = np.array([np.nan, np.inf, -np.inf], np.float32)
KINKED = [tf.nn.relu, tf.nn.relu6, tf.nn.elu, tf.nn.selu, tf.nn.leaky_relu]
ALL = [*KINKED, tf.nn.softplus, tf.nn.softsign, tf.nn.softmax, tf.nn.log_softmax]
ALL += [tf.nn.gelu, tf.nn.crelu, lambda x: tf.nn.leaky_relu(x, 1.5)]


@pytest.mark.parametrize("function", ALL)
def test_activation(function):
    model = assert_agrees(function, X)
    forward = jax.jvp(lambda x: model.apply(model.params, x), (X,), (jnp.ones_like(X),))[1]
    assert np.isfinite(forward).all()


@pytest.mark.parametrize("function", [*KINKED, tf.nn.softplus, tf.nn.softsign])
def test_no_numbers(function):
    assert_agrees(function, ODD, vmap=False)


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16])
@pytest.mark.parametrize("function", ALL[:9])
def test_half_precision(function, dtype):
    assert_agrees(function, X.astype(dtype))


def test_whole_numbers():
    for function in (tf.nn.relu, tf.nn.relu6):
        assert_agrees(function, np.array([-3, 0, 5, 9], np.int32))


@pytest.mark.parametrize("rows", [(0, 3), (3, 0), (2, 3, 4)])
@pytest.mark.parametrize("function", [tf.nn.softmax, tf.nn.log_softmax])
def test_softmax(function, rows):
    assert_agrees(function, np.random.default_rng(1).standard_normal(rows).astype(np.float32))
    assert_agrees(lambda x: function(x, axis=0), np.ones((2, 3), np.float32))


@pytest.mark.parametrize(
    "name", ["Relu", "Relu6", "Elu", "Selu", "LeakyRelu", "Softplus", "Softsign"]
)
def test_operators_of_gradients(name):
    op = getattr(tf.raw_ops, f"{name}Grad")
    second = "outputs" if name in ("Elu", "Selu") else "features"
    grad = name not in ("Softsign",)  # TensorFlow has none
    assert_agrees(lambda g, x: op(**{"gradients": g, second: x}), X[::-1] + 1, X, grad=grad)


@pytest.mark.parametrize("function", [tf.nn.elu, tf.nn.softplus, tf.nn.selu])
def test_second_derivatives(function):
    def grad(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return tape.gradient(y, x)

    assert_agrees(grad, X)


def test_softsign_far_from_zero_keeps_its_digits():
    model = anyjax.from_tensorflow(tf.nn.softsign, X)
    x = np.float32(1e5)
    slope = jax.grad(lambda x: model.apply(model.params, jnp.full(X.shape, x)).sum())(x) / X.size
    np.testing.assert_allclose(slope, 1 / (1 + float(x)) ** 2, rtol=1e-5)


# Gradients of elementwise functions, as operators.


NAMES = ["InvGrad", "ReciprocalGrad", "RsqrtGrad", "SigmoidGrad", "SqrtGrad", "TanhGrad"]
Y = np.array([0.25, -0.5, 2.0], np.float32)


@pytest.mark.parametrize("name", NAMES)
def test_real(name):
    assert_agrees(lambda y, dy: getattr(tf.raw_ops, name)(y=y, dy=dy), Y, Y[::-1].copy())


@pytest.mark.parametrize("name", NAMES)
def test_complex(name):
    z = (Y + 1j * Y[::-1]).astype(np.complex64)
    assert_agrees(lambda y, dy: getattr(tf.raw_ops, name)(y=y, dy=dy), z, z * 1j)


def test_a_gradient_inside_of_the_function():
    def function(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.tanh(tf.sigmoid(x) * tf.math.rsqrt(x)) / tf.sqrt(x)
        return tape.gradient(y, x)

    assert_agrees(function, np.array([0.5, 1.0, 2.0], np.float32))
