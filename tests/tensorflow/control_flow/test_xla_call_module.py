"""JAX functions that jax2tf put into a TensorFlow graph come back, with gradients and vmap."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from jax.experimental import jax2tf

import anyjax
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=8)

X = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)


def scanned(x):
    return jax.lax.scan(lambda c, row: (c + jnp.sin(row), c * row), x[0], x)


@pytest.mark.parametrize("with_gradient", [True, False])
@pytest.mark.parametrize("function", [jnp.sin, jax.nn.softmax, scanned, lambda x: x @ x.T])
def test_there_and_back(function, with_gradient):
    converted = tf.function(
        jax2tf.convert(function, with_gradient=with_gradient), autograph=False, jit_compile=True
    )
    model = anyjax.from_tensorflow(converted, X)
    back = lambda x: model.apply({}, x)
    assert_close(jax.jit(back)(X), function(X), reduction=8)
    loss = lambda f: lambda x: sum(jnp.sum(y**2) for y in jax.tree.leaves(f(x)))
    if with_gradient:
        assert_close(jax.jit(jax.grad(loss(back)))(X), jax.grad(loss(function))(X), reduction=64)
        several = jnp.stack([X, X * 2])
        assert_close(jax.vmap(back)(several), jax.vmap(function)(several), reduction=8)


def test_unknown_sizes():
    converted = jax2tf.convert(lambda x: x / x.shape[0], polymorphic_shapes=["(b, _)"])
    model = anyjax.from_tensorflow(
        tf.function(converted, autograph=False), tf.TensorSpec([None, 3])
    )
    for count in (2, 5):
        assert_close(model(X[:count]), X[:count] / count, reduction=1)


def test_a_second_derivative_goes_through_the_saved_one():
    fn = tf.function(jax2tf.convert(lambda x: jnp.sin(x) ** 2), autograph=False)
    model = anyjax.from_tensorflow(fn, np.float32(0))
    second = jax.grad(jax.grad(lambda x: model.apply({}, x)))
    np.testing.assert_allclose(second(0.3), 2 * np.cos(0.6), rtol=1e-5)
