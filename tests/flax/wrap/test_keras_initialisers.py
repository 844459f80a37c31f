"""Keras models are built again."""

import random

import numpy as np

import anyjax
from anyjax.flax.wrap.keras_initialisers import rerun
from tests.flax.wrap.nets import keras_net
from tests.tolerance import assert_close


def test_variables_are_made_from_the_seed():
    import keras

    source = anyjax.from_tensorflow(keras_net()[0]).source
    before = random.getstate()
    one, same, other = rerun(source, 1), rerun(source, 1), rerun(source, 2)
    assert random.getstate() == before
    assert_close(one, same)
    assert not np.array_equal(one["sequential/dense/kernel"], other["sequential/dense/kernel"])
    limit = (6 / (4 + 3)) ** 0.5  # Glorot's
    assert np.abs(one["sequential/dense/kernel"]).max() <= limit
    layer = keras.layers.Dense(2)
    layer.build((None, 3))
    assert {v.shape for v in rerun(anyjax.from_tensorflow(layer).source, 1).values()} == {
        (3, 2),
        (2,),
    }


def test_what_cannot_be_built_again_is_left_out():
    import keras
    import tensorflow as tf

    class Own(keras.Model):
        def __init__(self, units):
            super().__init__()
            self.inner = keras.layers.Dense(units)

        def call(self, x):
            return self.inner(x)

    model = Own(2)
    x = np.ones((1, 3), np.float32)
    model(x)
    assert rerun(anyjax.from_tensorflow(model).source, 1) == {}
    w = tf.Variable([2.0], name="w")
    assert rerun(anyjax.from_tensorflow(lambda x: x * w, x).source, 1) == {}
