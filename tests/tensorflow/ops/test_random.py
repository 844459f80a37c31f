"""Random numbers from the key of the call."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import anyjax
from anyjax.errors import MissingRng

pytestmark = pytest.mark.sample(every=10)

R = tf.raw_ops
KEY = jax.random.key(0)
N = 4000
ALPHA = np.array([0.5, 4.0], np.float32)


def draw(function, *args, key=KEY):
    return np.asarray(anyjax.from_tensorflow(function, *args)(*args, rng=key))


CASES = {  # the function, mean, standard deviation, range
    "uniform": (lambda: tf.random.uniform([N]), 0.5, 12**-0.5, (0, 1)),
    "normal": (lambda: tf.random.normal([N], 1.0, 2.0), 1, 2, (-10, 12)),
    "truncated": (lambda: tf.random.truncated_normal([N]), 0, 0.8796, (-2, 2)),
    "integers": (lambda: tf.random.uniform([N], -2, 5, tf.int32), 1, 2, (-2, 4)),
    "gamma": (lambda: tf.random.gamma([N], 4.0), 4, 2, (0, 30)),
    "poisson": (lambda: tf.random.poisson([N], 3.0), 3, 3**0.5, (0, 20)),
    "exponential": (lambda: -tf.math.log1p(-tf.random.uniform([N])), 1, 1, (0, 20)),
    "half": (lambda: tf.random.uniform([N], dtype=tf.float16), 0.5, 12**-0.5, (0, 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_moments(name):
    function, mean, deviation, (low, high) = CASES[name]
    x = draw(function)
    assert x.shape == (N,) and x.dtype == function().dtype
    x = x.astype(np.float64)
    assert abs(x.mean() - mean) < 5 * deviation / N**0.5
    assert abs(x.std() - deviation) < 0.1 * deviation
    assert low <= x.min() and x.max() <= high
    assert np.array_equal(x, draw(function))
    assert not np.array_equal(x, draw(function, key=jax.random.key(1)))


def test_two_draws_differ():
    a, b = anyjax.from_tensorflow(lambda: (tf.random.normal([3]), tf.random.normal([3])))(rng=KEY)
    assert not np.array_equal(a, b)


def test_a_key_is_needed():
    with pytest.raises(MissingRng):
        anyjax.from_tensorflow(lambda: tf.random.normal([3]))()


def test_gammas_of_each_alpha():
    x = draw(lambda a: tf.random.gamma([N], a), ALPHA)
    assert x.shape == (N, 2)
    assert np.allclose(x.mean(0), ALPHA, atol=0.2)


def test_the_gradient_of_a_gamma():
    model = anyjax.from_tensorflow(lambda a: tf.random.gamma([N], a), ALPHA)
    got = jax.grad(lambda a: model.apply({}, a, rng=KEY).mean(0).sum())(ALPHA)
    assert np.allclose(got, 1, atol=0.15)


def test_poissons_of_each_rate():
    x = draw(lambda a: tf.random.poisson([N], a, dtype=tf.int32), ALPHA)
    assert x.shape == (N, 2) and x.dtype == np.int32
    assert np.allclose(x.mean(0), ALPHA, atol=0.2)


def test_shuffled_rows():
    x = np.arange(20).reshape(10, 2)
    y = draw(tf.random.shuffle, x.astype(np.int32))
    assert not np.array_equal(x, y) and np.array_equal(x, y[y[:, 0].argsort()])


def test_classes():
    logits = np.log(np.array([[0.2, 0.3, 0.5], [1.0, 1e-9, 1e-9]], np.float32))
    x = draw(lambda x: tf.random.categorical(x, N, tf.int32), logits)
    assert x.shape == (2, N) and x.dtype == np.int32
    assert np.allclose(np.bincount(x[0]) / N, [0.2, 0.3, 0.5], atol=0.05)
    assert (x[1] == 0).all()


def test_truncated_rows():
    bounds = np.array([0.0, -10.0], np.float32)
    x = draw(
        lambda low: R.ParameterizedTruncatedNormal(
            shape=[2, N], means=0.0, stdevs=1.0, minvals=low, maxvals=10.0
        ),
        bounds,
    )
    assert x.shape == (2, N)
    assert x[0].min() >= 0 and np.isclose(x[0].mean(), (2 / np.pi) ** 0.5, atol=0.05)
    assert np.isclose(x[1].mean(), 0, atol=0.1)
