"""Operators that pass their input on."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import anyjax
from anyjax.errors import NoGradient, WrongValue
from tests.tensorflow.agree import assert_agrees

pytestmark = pytest.mark.sample(every=10)

raw = tf.raw_ops
X = np.array([[1.0, -2.0]], np.float32)


@pytest.mark.parametrize("name", ["Identity", "Snapshot", "GuaranteeConst", "Copy", "CopyHost"])
def test_identities(name):
    assert_agrees(lambda x: getattr(raw, name)(input=x), X, grad=name == "Identity")


def test_gradients_that_end():
    assert_agrees(lambda x: raw.DeepCopy(x=x), X, grad=False)
    assert_agrees(lambda x: tf.compat.v1.placeholder_with_default(x, [None, 2]), X)
    assert_agrees(lambda x: tf.stop_gradient(x) * x, X)
    assert_agrees(lambda x: x * tf.cast(tf.stop_gradient(tf.shape(x))[1], tf.float32), X)


def test_ensure_shape():
    assert_agrees(lambda x: tf.ensure_shape(x, [None, 2]), X)
    spec = tf.function(lambda x: tf.ensure_shape(x, [None, 2]), [tf.TensorSpec(None)])
    assert anyjax.from_tensorflow(spec)(X).shape == (1, 2)
    with pytest.raises(WrongValue, match=r"\(1, 2, 1\)"):
        anyjax.from_tensorflow(spec)(X[..., None])


def test_prevent_gradient():
    assert_agrees(lambda x: raw.PreventGradient(input=x), X, grad=False)
    model = anyjax.from_tensorflow(
        lambda x, y: y * raw.PreventGradient(input=x, message="not here"), X, X
    )
    jax.jit(jax.grad(lambda y: model.apply({}, X, y).sum()))(X)
    for transform in (
        jax.grad(lambda x: model.apply({}, x, X).sum()),
        jax.jacfwd(lambda x: model.apply({}, x, X)),
    ):
        with pytest.raises(NoGradient, match=r"^not here"):
            transform(X)


def test_check_numerics():
    assert_agrees(lambda x: tf.debugging.check_numerics(x, "bad"), X)
    model = anyjax.from_tensorflow(lambda x: tf.debugging.check_numerics(x, "bad"), X)
    assert np.isnan(model(np.array([[1, np.inf]], np.float32))).all()
