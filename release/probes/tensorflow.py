"""A Keras model and a function of TensorFlow, without PyTorch."""

import importlib.util

import jax
import keras
import numpy as np
import tensorflow as tf

import anyjax

assert importlib.util.find_spec("torch") is None
x = np.ones((2, 4), np.float32)
dense = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3, "relu")])
np.testing.assert_allclose(anyjax.from_tensorflow(dense)(x), dense(x), rtol=1e-5)
square = anyjax.from_tensorflow(tf.function(lambda x: x * x), tf.TensorSpec((), tf.float32))
assert jax.grad(lambda x: square.apply({}, x))(3.0) == 6.0
print("ok: Keras, tf.function, gradient")
