"""Generators that keep their state in a variable."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import anyjax
from anyjax.errors import Unsupported

pytestmark = pytest.mark.sample(every=8)

X = np.zeros(5, np.float32)


class Noise(tf.Module):
    def __init__(self, state):
        super().__init__()
        self.generator = tf.random.Generator.from_state(state, alg="philox")

    @tf.function
    def __call__(self, x):
        return x + self.generator.normal([5]), self.generator.uniform([3], 0, 9, tf.int32)


@pytest.mark.parametrize("state", [[42, 0, 0], [-1, 5, 7]])
def test_a_stream_goes_on(state):
    module = Noise(state)
    with jax.enable_x64(True):
        model = anyjax.from_tensorflow(module, X)
        (got, integers), new_state = model.apply(model.params, X, mutable=True)
        want, theirs = module(X)
        assert np.allclose(got, want, atol=1e-6) and np.array_equal(integers, theirs)
        (name,) = new_state
        assert np.array_equal(new_state[name], module.generator.state)


def test_without_64_bits():
    with pytest.raises(Unsupported, match="x64"):
        anyjax.from_tensorflow(Noise([42, 0, 0]), X)(X)
