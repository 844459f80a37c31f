"""tf2jax's functions, beside tf2jax itself; its own suite: tests/conformance/test_tf2jax.py."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import anyjax.tensorflow as ours
from anyjax.errors import MissingRng, Unsupported, WrongValue

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


class Dense(tf.Module):
    def __init__(self):
        self.w = tf.Variable(X.T.copy(), name="w")
        self.calls = tf.Variable(0.0, name="calls", trainable=False)

    @tf.function
    def __call__(self, x):
        self.calls.assign_add(1.0)
        return tf.nn.relu(x @ self.w), {"calls": self.calls + 0}


DENSE = Dense()  # TensorFlow holds it weakly


def test_the_same_as_tf2jax():
    theirs = pytest.importorskip("tf2jax")
    module = Dense()
    results = []
    for library in (ours, theirs):
        fn, params = library.convert(module.__call__, np.zeros_like(X))
        (out, counted), new = jax.jit(fn)(params, X)
        newer = fn(new, X)[1]
        results.append((out, counted["calls"], new["calls"], newer["calls"], str(fn.signature)))
        assert {k: (type(v).__name__, v.trainable) for k, v in params.items()} == {
            "w": ("Variable", True), "calls": ("Variable", False)
        }  # fmt: skip
        assert fn.structured_inputs[0][-1].shape == X.shape
    for mine, expected in zip(*results):
        if isinstance(mine, str):
            assert mine == expected
        else:
            np.testing.assert_allclose(mine, expected, rtol=1e-6)


def test_keys():
    fn = ours.convert_functional(tf.function(lambda x: x + tf.random.normal(x.shape)), X)
    drawn = fn(X, rng=jax.random.key(0))
    np.testing.assert_array_equal(drawn, fn(X, rng=jax.random.key(0)))
    assert (np.asarray(drawn) != np.asarray(fn(X, rng=jax.random.key(1)))).any()
    with pytest.raises(MissingRng):
        fn(X)


def test_mistakes():
    with pytest.raises(Unsupported, match="convert takes a"):
        ours.convert(lambda x: x, X)
    with pytest.raises(WrongValue, match="no captured variables"):
        ours.convert_functional(DENSE.__call__, X)
    with pytest.raises(WrongValue, match="no switch"):
        ours.update_config("no such switch", 1)
    fn = ours.convert_functional(tf.function(tf.sin), X)
    with pytest.raises(WrongValue, match="incompatible input shape"):
        fn(X[:2])
    with ours.override_config("strict_shape_check", False):
        assert fn(X[:2]).shape == (2, 4)
