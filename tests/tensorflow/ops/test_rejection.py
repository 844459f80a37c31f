"""Gamma and Poisson numbers: TensorFlow's, but for rare turns of rounding while x64 is off."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import anyjax

pytestmark = pytest.mark.sample(every=10)

SEED = np.array([7, -3], np.int32)
N = 1001
ALPHA = np.array([0.3, 1.0, 1.5, 20.0], np.float32)
RATE = np.array([0.5, 7.0, 10.0, 1000.0], np.float32)


def gammas(s, a):
    return tf.random.stateless_gamma([N, 4], s, a)


def poissons(s, a):
    return tf.random.stateless_poisson([N, 4], s, a, tf.int32)


@pytest.mark.parametrize("function", [gammas, poissons])
@pytest.mark.parametrize("wide", [False, True])
def test_agrees(function, wide):
    args = SEED, ALPHA if function is gammas else RATE
    want = function(*args).numpy()
    with jax.enable_x64(wide):
        got = np.asarray(anyjax.from_tensorflow(function, *args)(*args))
    assert got.dtype == want.dtype and got.shape == want.shape
    if wide:
        assert np.array_equal(got, want)
    else:
        assert (abs(got - want) <= 1e-5 * want).mean() > 0.995


def test_the_gradient_of_gammas():
    alpha = ALPHA[[0, 2, 3]]
    function = lambda s, a: tf.random.stateless_gamma([5, 3], s, a)
    with tf.GradientTape() as tape:
        tensor = tf.constant(alpha)
        tape.watch(tensor)
        total = tf.reduce_sum(function(SEED, tensor))
    model = anyjax.from_tensorflow(function, SEED, alpha)
    got = jax.jit(jax.grad(lambda a: model.apply({}, SEED, a).sum()))(alpha)
    assert np.allclose(got, tape.gradient(total, tensor), rtol=1e-4)


def test_vmap():
    seeds = np.arange(4, dtype=np.int32).reshape(2, 2)
    function = lambda s: tf.random.stateless_poisson([5], s, 3.0, tf.int32)
    model = anyjax.from_tensorflow(function, SEED)
    got = jax.vmap(lambda s: model.apply({}, s))(seeds)
    assert np.array_equal(got, [function(s) for s in seeds])
