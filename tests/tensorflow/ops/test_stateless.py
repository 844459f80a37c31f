"""Operators with a seed, or with a key and a counter."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import anyjax
from anyjax.errors import Unsupported
from tests.tensorflow.agree import assert_agrees

pytestmark = pytest.mark.sample(every=10)

R = tf.raw_ops
SEED = np.array([7, -3], np.int32)
LOGITS = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)
FUNCTIONS = {
    "uniform": lambda s: tf.random.stateless_uniform([3, 5], s, -1, 2),
    "normal": lambda s: tf.random.stateless_normal([3, 5], s, 1.0, 2.0),
    "truncated": lambda s: tf.random.stateless_truncated_normal([3, 5], s),
    "integers": lambda s: tf.random.stateless_uniform([3, 5], s, 0, 9, tf.int32),
    "split": lambda s: tf.random.split(s, 3),
    "fold_in": lambda s: tf.random.fold_in(s, 5),
    "dropout": lambda s: tf.nn.experimental.stateless_dropout(tf.ones([4, 5]), 0.4, s),
    "old uniform": lambda s: R.StatelessRandomUniform(shape=[4], seed=s),
    "shuffle": lambda s: tf.random.experimental.stateless_shuffle(tf.range(20), s),
    "shuffle nothing": lambda s: tf.random.experimental.stateless_shuffle(tf.zeros([0, 2]), s),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_agrees(name):
    assert_agrees(FUNCTIONS[name], SEED)


@pytest.mark.parametrize("name", ["normal", "truncated", "integers", "shuffle"])
def test_vmap_over_seeds(name):
    seeds = np.arange(6, dtype=np.int32).reshape(3, 2)
    model = anyjax.from_tensorflow(FUNCTIONS[name], SEED)
    got = jax.vmap(lambda s: model.apply({}, s))(seeds)
    assert np.allclose(got, [FUNCTIONS[name](s) for s in seeds], atol=1e-6)


def test_known_seeds():
    """Seeds of 64 bits, and keys split off them, whether x64 is on or not."""
    seed = tf.constant([2**40 + 1, -(2**50)], tf.int64)
    function = lambda: tf.random.stateless_uniform([3], tf.random.split(seed, 2)[1])
    assert np.array_equal(anyjax.from_tensorflow(function)(), function())


def test_categories():
    assert_agrees(
        lambda x, s: tf.random.stateless_categorical(x, 9, s, tf.int32), LOGITS, SEED, grad=False
    )
    impossible = np.where(LOGITS > 0, LOGITS, -np.inf).astype(np.float32)
    assert_agrees(
        lambda x, s: tf.random.stateless_categorical(x, 9, s), impossible, SEED, grad=False
    )


def test_philox_by_name():
    """Its key is made in Python, by shifts of 64 bits."""
    function = lambda s: tf.random.stateless_uniform([3], s, alg="philox")
    constant = lambda: function(SEED)
    assert np.array_equal(anyjax.from_tensorflow(constant)(), constant())
    with pytest.raises(Unsupported, match="shift"):
        anyjax.from_tensorflow(function, SEED)(SEED)
    with jax.enable_x64(True):
        assert np.array_equal(anyjax.from_tensorflow(function, SEED)(SEED), function(SEED))


def test_threefry():
    function = lambda: tf.random.stateless_uniform([4], SEED, alg="threefry")
    with pytest.raises(Unsupported, match="algorithm 2"):
        anyjax.from_tensorflow(function)()


def test_the_algorithm():
    chosen = anyjax.from_tensorflow(lambda: R.StatelessRandomGetAlg())()
    assert chosen == tf.random.Algorithm.AUTO_SELECT.value  # as on XLA's devices
    function = lambda s: R.StatelessRandomGetKeyCounterAlg(seed=s)

    def drawn(s):
        key, counter, alg = function(s)
        return R.StatelessRandomNormalV2(shape=[4], key=key, counter=counter, alg=alg)

    assert_agrees(drawn, SEED)
