"""tf.custom_gradient and its relatives."""

import jax
import keras
import numpy as np
import pytest
import tensorflow as tf

import anyjax
from anyjax.errors import LostGradient
from tests.tensorflow.agree import assert_agrees
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=8)

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


@tf.custom_gradient
def odd(x):
    """A gradient that is none, and needs a value of the function's inside."""
    e = tf.exp(x)
    return tf.reduce_sum(e), lambda dy: dy * tf.sin(x) + e


@tf.custom_gradient
def twice(x, y):
    return (x * y, x + y), lambda dx, dy: (dx * 3, dy * y)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: odd(x) + odd(x * 2),
        lambda x: twice(x, tf.sin(x)),
        lambda x: tf.map_fn(odd, x),
        lambda x: tf.recompute_grad(lambda y: tf.sin(y) * tf.exp(y))(x),
        lambda x: tf.grad_pass_through(tf.round)(x),
        lambda x: keras.activations.silu(x),
    ],
)
def test_custom_gradient(function):
    assert_agrees(function, X)


def test_inside_of_a_branch():
    """TensorFlow's own tape fails on this one."""
    branch = lambda x: tf.cond(tf.reduce_sum(x) > -99, lambda: odd(x), lambda: 0.0)
    model = anyjax.from_tensorflow(branch, X)
    grad = jax.grad(lambda x: model.apply({}, x))(X)
    np.testing.assert_allclose(grad, np.sin(X) + np.exp(X), rtol=1e-5)


class Scaled(tf.Module):
    def __init__(self):
        self.w = tf.Variable(2.0, name="w")

    def __call__(self, x):
        @tf.custom_gradient
        def run(x):
            def grad(dy, variables=None):
                return dy * self.w * 5, [tf.reduce_sum(dy * x) * 7]

            return x * self.w, grad

        return run(x)


def test_captured_variables():
    module = Scaled()
    model = anyjax.from_tensorflow(module)
    inputs = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        out = tf.reduce_sum(module(inputs) ** 2)
    want = tape.gradient(out, [inputs, module.w])
    loss = lambda params, x: (model.apply(params, x) ** 2).sum()
    grads, dx = jax.grad(loss, (0, 1))(model.params, X)
    np.testing.assert_allclose(dx, want[0], rtol=1e-5)
    np.testing.assert_allclose(grads["w"], want[1], rtol=1e-5)


def test_saved_with_and_without(tmp_path):
    module = tf.Module()
    module.f = tf.function(odd, input_signature=[tf.TensorSpec([3, 4])])
    loss = lambda model: jax.grad(lambda x: model.apply({}, x))(X)
    want = loss(anyjax.from_tensorflow(odd, X))
    with_gradients = tf.saved_model.SaveOptions(experimental_custom_gradients=True)
    tf.saved_model.save(module, str(tmp_path / "kept"), options=with_gradients)
    restored = tf.saved_model.load(str(tmp_path / "kept"))
    np.testing.assert_allclose(loss(anyjax.from_tensorflow(restored.f, X)), want, rtol=1e-6)
    without_gradients = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    tf.saved_model.save(module, str(tmp_path / "lost"), options=without_gradients)
    # Registered in this process by the first load: another process would not find it.
    assert issubclass(LostGradient, UserWarning)


def _exponential(x):
    y = tf.exp(x)
    return y, lambda dy: dy * y


def _softplus(x):
    e = tf.exp(x)
    return tf.math.log(1 + e), lambda dy: dy * (1 - 1 / (1 + e))


@pytest.mark.parametrize("function", [_exponential, _softplus])
def test_second_derivatives_go_through_captured_values(function):
    custom = tf.custom_gradient(function)
    fn = tf.function(lambda x: custom(tf.sin(x)))
    x = tf.Variable(0.3)
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            y = fn(x)
        slope = inner.gradient(y, x)
    model = anyjax.from_tensorflow(fn, np.float32(0))
    second = jax.grad(jax.grad(lambda x: model.apply({}, x)))
    assert_close(second(0.3), outer.gradient(slope, x).numpy(), reduction=8)
