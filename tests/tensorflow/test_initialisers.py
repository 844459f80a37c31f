"""Keras models are built again."""

import random

import jax
import numpy as np
import pytest

import anyjax
from anyjax.errors import Unsupported, WrongArguments
from anyjax.tensorflow.initialisers import rerun
from tests.flax.wrap.nets import keras_net
from tests.tolerance import assert_close


def test_variables_are_made_from_the_seed():
    import keras

    source = anyjax.from_tensorflow(keras_net()[0]).source
    before = random.getstate()
    one, same, other = rerun(source, 1), rerun(source, 1), rerun(source, 2)
    assert random.getstate() == before
    assert_close(one, same)
    kernel = next(name for name in one if name.endswith("kernel"))  # Keras numbers its models
    assert not np.array_equal(one[kernel], other[kernel])
    limit = (6 / (4 + 3)) ** 0.5  # Glorot's
    assert np.abs(one[kernel]).max() <= limit
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


def test_params_of_a_key_in_and_outside_of_programs():
    model = anyjax.from_tensorflow(keras_net()[0])
    key = jax.random.key(3)
    name = next(name for name in model.params if name.endswith("kernel"))
    params, other = model.init(key), model.init(jax.random.key(4))
    assert set(params) == set(model.params)
    assert not np.array_equal(params[name], other[name])
    assert_close(jax.jit(model.init)(key), params)
    ensemble = jax.vmap(model.init)(jax.numpy.stack([key, jax.random.key(4)]))
    assert_close({k: x[1] for k, x in ensemble.items()}, other)
    trained = model.with_state({k: x + 1 for k, x in model.state.items()})
    state = trained.init(key, mutable=True)[1]
    assert_close(*({k: x[k] for k in x if "moving" in k} for x in (state, model.state)))


def test_what_cannot_be_drawn_is_refused():
    import tensorflow as tf

    w = tf.Variable([2.0], name="w")
    model = anyjax.from_tensorflow(lambda x: x * w, np.ones(1, np.float32))
    with pytest.raises(Unsupported, match="fresh params"):
        model.init(jax.random.key(0))
    with pytest.raises(WrongArguments, match="build= for"):
        model.init(jax.random.key(0), build=lambda: None)
