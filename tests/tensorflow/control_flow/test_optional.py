"""Gradients of branches and loops that the graph itself takes, and graphs that were trained."""

import numpy as np
import pytest
import tensorflow as tf

import anyjax
from tests.tensorflow.agree import assert_agrees

pytestmark = pytest.mark.sample(every=8)

X = np.random.default_rng(0).standard_normal(4).astype(np.float32)


def slope(function):
    def inside(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(function(x))
        return tape.gradient(total, x)

    return inside


BRANCH = lambda x: tf.cond(x[0] > 0, lambda: tf.sin(x), lambda: x * x)
LOOP = lambda x: tf.while_loop(lambda i, a: i < 4, lambda i, a: (i + 1, tf.sin(a)), [0, x])[1]
BOUNDED = lambda x: tf.while_loop(
    lambda a: tf.reduce_sum(abs(a)) < 9.0, lambda a: (a * 1.5,), [x], maximum_iterations=6
)[0]


@pytest.mark.parametrize("function", [BRANCH, LOOP, BOUNDED])
def test_gradients_inside(function):
    assert_agrees(slope(function), X)


def test_a_loop_of_unknown_length_is_refused():
    loop = lambda x: tf.while_loop(lambda a: tf.reduce_sum(a) < 9.0, lambda a: (a * 2,), [abs(x)])
    model = anyjax.from_tensorflow(slope(lambda x: loop(x)[0]), X)
    with pytest.raises(anyjax.errors.Unsupported, match="grows in a loop"):
        model(X)


@pytest.mark.parametrize("function", [BRANCH, LOOP, BOUNDED])
def test_a_function_that_tensorflow_has_differentiated(function):
    run = tf.function(function)
    with tf.GradientTape() as tape:
        tape.watch(x := tf.constant(X))
        out = run(x)
    assert tape.gradient(out, x) is not None
    np.testing.assert_allclose(anyjax.from_tensorflow(run, X)(X), out, rtol=1e-6)
