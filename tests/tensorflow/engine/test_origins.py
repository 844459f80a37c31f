"""Arguments that decide shapes: they are named, and static by themselves in a call."""

import warnings

import jax
import numpy as np
import pytest
import tensorflow as tf

import anyjax
from anyjax.errors import DataDependent, StaticArgument

pytestmark = pytest.mark.sample(every=8)

X = np.arange(12, dtype=np.float32).reshape(2, 6)
N = np.int32(3)


class Sized(tf.Module):
    def __init__(self):
        self.size = tf.Variable([3, -1], trainable=False, name="size")

    def __call__(self, x):
        return tf.reshape(x, self.size)


@pytest.mark.parametrize(
    "function, n",
    [
        (lambda x, n: tf.reshape(x, [n, -1]), N),
        (lambda x, n: tf.range(n) + tf.cast(x[0, 0], tf.int32), N),
        (lambda x, n: tf.fill([n, 2], x[0, 0]), N),
        (lambda x, n: x[:, :n], N),
        (lambda x, n: tf.transpose(x, n), np.array([1, 0], np.int32)),
        (lambda x, n: tf.boolean_mask(x, n), np.array([True, False])),
        (lambda x, n: tf.function(lambda a, b: tf.reshape(a, [b * 2, -1]))(x, n), N),
        (lambda x, n: tf.map_fn(lambda i: i * 2, tf.range(n)), N),
        (
            lambda x, n: tf.while_loop(
                lambda i, a: i < 2, lambda i, a: (i + 1, a + tf.reduce_sum(tf.ones([n]))), [0, x]
            )[1],
            N,
        ),
        (lambda x, n: tf.cond(n > 1, lambda: tf.zeros([n]), lambda: tf.ones([n])), N),
    ],
)
def test_integers_become_static(function, n):
    model = anyjax.from_tensorflow(function, X, n)
    with pytest.warns(StaticArgument, match="n: the values decide"):
        got = model(X, n)
    np.testing.assert_array_equal(got, tf.function(function)(X, n))
    with warnings.catch_warnings():  # one notice
        warnings.simplefilter("error")
        model(X, n)
    with pytest.raises(DataDependent) as caught:
        jax.jit(lambda x, n: model.apply(model.params, x, n))(X, n)
    assert caught.value.arguments == ("n",)
    assert "n decided it" in caught.value.why
    np.testing.assert_array_equal(model.apply(model.params, X, n), got)


def test_names_of_arguments_in_containers():
    function = lambda pair: tf.reshape(pair["x"], [pair["sizes"][1], -1])
    pair_of_inputs = {"x": X, "sizes": [N, np.int32(4)]}
    model = anyjax.from_tensorflow(function, pair_of_inputs)
    with pytest.warns(StaticArgument, match=r"pair\['sizes'\]\[1\]: the values"):
        assert model(pair_of_inputs).shape == (4, 3)


def test_floats_are_named_and_not_made_static():
    model = anyjax.from_tensorflow(lambda x: tf.where(x > 1), X)
    with pytest.raises(DataDependent, match="x decided it") as caught:
        model(X)
    assert f"{__file__}:" in caught.value.where


def test_sizes_in_the_state():
    model = anyjax.from_tensorflow(Sized())
    assert model(X).shape == (3, 4)
