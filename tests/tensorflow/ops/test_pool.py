"""Pooling: ties, padding that does not count, places of maxima, operators of gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import anyjax
from tests.tensorflow.agree import assert_agrees
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=10)

RNG = np.random.default_rng(1)
X = RNG.standard_normal((2, 7, 6, 3)).astype(np.float32)
X3 = RNG.standard_normal((1, 4, 5, 3, 2)).astype(np.float32)
TIES = np.round(X)
raw = tf.raw_ops


@pytest.mark.parametrize("padding", ["SAME", "VALID", [[0, 0], [1, 0], [0, 1], [0, 0]]])
@pytest.mark.parametrize("ksize, strides", [(2, 2), ((3, 2), (1, 2))])
def test_max_pool(padding, ksize, strides):
    assert_agrees(lambda x: tf.nn.max_pool2d(x, ksize, strides, padding), X)
    assert_agrees(lambda x: tf.nn.max_pool2d(x, ksize, strides, padding), TIES)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("ksize, strides", [(2, 2), (3, 1), ((3, 2), (1, 2))])
def test_avg_pool(padding, ksize, strides):
    assert_agrees(lambda x: tf.nn.avg_pool2d(x, ksize, strides, padding), X)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("op", [tf.nn.max_pool3d, tf.nn.avg_pool3d])
def test_pool3d(op, padding):
    assert_agrees(lambda x: op(x, 2, 2, padding), X3)
    assert_agrees(lambda x: op(x, [2, 3, 2], [1, 2, 1], padding), X3)


@pytest.mark.parametrize("op", [tf.nn.max_pool1d, tf.nn.avg_pool1d])
def test_pool1d(op):
    assert_agrees(lambda x: op(x, 2, 2, "SAME"), X[0])


def test_max_pool_over_channels_and_of_whole_numbers():
    assert_agrees(lambda x: tf.nn.max_pool2d(x, [1, 1, 1, 3], [1, 1, 1, 3], "VALID"), X, grad=False)
    assert_agrees(lambda x: tf.nn.max_pool2d(x, 2, 2, "SAME"), (X * 9).astype(np.int32))


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16])
def test_half_precision(dtype):
    assert_agrees(lambda x: tf.nn.max_pool2d(x, 2, 2, "SAME"), X.astype(dtype))
    assert_agrees(lambda x: tf.nn.avg_pool2d(x, 2, 2, "SAME"), X.astype(dtype))


def test_version_that_takes_windows_as_tensors():
    how = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}
    assert_agrees(lambda x: raw.MaxPoolV2(input=x, **how), X)
    y = tf.nn.max_pool2d(X, 2, 2, "SAME").numpy()
    assert_agrees(
        lambda x, y, g: raw.MaxPoolGradV2(orig_input=x, orig_output=y, grad=g, **how), X, y, y
    )
    run = lambda x, y, g: raw.MaxPoolGradGradV2(orig_input=x, orig_output=y, grad=g, **how)
    assert_agrees(run, TIES, tf.nn.max_pool2d(TIES, 2, 2, "SAME"), X, grad=False, vmap=False)


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_max_pool_with_argmax(padding, include):
    how = {"padding": padding, "include_batch_in_index": include}
    run = lambda x: tf.nn.max_pool_with_argmax(x, 2, 2, **how)
    assert_agrees(run, X)
    assert_agrees(run, TIES)
    y, places = run(X)
    how |= {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1]}
    run = lambda x, g, p: raw.MaxPoolGradWithArgmax(input=x, grad=g, argmax=p, **how)
    assert_agrees(run, X, y.numpy(), places.numpy(), grad=False)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_gradients(padding):
    how = {"ksize": [1, 3, 2, 1], "strides": [1, 2, 2, 1], "padding": padding}
    y = raw.MaxPool(input=TIES, **how).numpy()
    run = lambda x, y, g: raw.MaxPoolGrad(orig_input=x, orig_output=y, grad=g, **how)
    assert_agrees(run, TIES, y, y + 1, vmap=False)  # a scaled maximum is no maximum for TensorFlow
    run = lambda x, y, g: raw.MaxPoolGradGrad(orig_input=x, orig_output=y, grad=g, **how)
    assert_agrees(run, TIES, y, X, vmap=False)
    y = raw.AvgPool(value=X, **how).numpy()
    assert_agrees(lambda g: raw.AvgPoolGrad(orig_input_shape=X.shape, grad=g, **how), y)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_gradients_3d(padding):
    how = {"ksize": [1, 2, 3, 2, 1], "strides": [1, 2, 1, 2, 1], "padding": padding}
    y = raw.MaxPool3D(input=X3, **how).numpy()
    run = lambda x, y, g: raw.MaxPool3DGrad(orig_input=x, orig_output=y, grad=g, **how)
    assert_agrees(run, X3, y, y + 1, vmap=False)
    run = lambda x, y, g: raw.MaxPool3DGradGrad(orig_input=x, orig_output=y, grad=g, **how)
    assert_agrees(run, X3, y, X3[::-1, ::-1], vmap=False)
    assert_agrees(lambda g: raw.AvgPool3DGrad(orig_input_shape=X3.shape, grad=g, **how), y)


@pytest.mark.parametrize("op", [tf.nn.max_pool2d, tf.nn.avg_pool2d])
def test_channels_first(op):
    """TensorFlow computes none of these on a CPU."""
    turned = np.transpose(X, [0, 3, 1, 2])
    model = anyjax.from_tensorflow(lambda x: op(x, 3, 2, "SAME", data_format="NCHW"), turned)
    want = op(X, 3, 2, "SAME").numpy()
    assert_close(np.transpose(model(turned), [0, 2, 3, 1]), want, reduction=9)
    jax.jvp(lambda x: model.apply(model.params, x), (turned,), (turned,))
