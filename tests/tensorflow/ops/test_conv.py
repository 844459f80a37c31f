"""Convolutions: paddings, strides, dilations, layouts, groups and their gradients' operators."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import anyjax
from anyjax.errors import ForwardFailed
from tests.tensorflow.agree import assert_agrees
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=10)

RNG = np.random.default_rng(1)
EXPLICIT = [[0, 0], [1, 2], [0, 3], [0, 0]]
FLAT = [0, 0, 1, 2, 0, 3, 0, 0]


def random(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


X, W = random(2, 7, 6, 3), random(3, 2, 3, 4)
X3, W3 = random(1, 4, 5, 3, 2), random(2, 3, 2, 2, 3)


@pytest.mark.parametrize("padding", ["SAME", "VALID", EXPLICIT])
@pytest.mark.parametrize("strides, dilations", [(1, 1), ((2, 3), 1), (1, (2, 1))])
def test_conv2d(padding, strides, dilations):
    grad = dilations == 1 or isinstance(padding, str)  # TensorFlow's kernels lack it
    run = lambda x, w: tf.nn.conv2d(x, w, strides, padding, dilations=dilations)
    assert_agrees(run, X, W, grad=grad)


def test_conv2d_of_groups():
    assert_agrees(lambda x, w: tf.nn.conv2d(x, w, 1, "SAME"), random(1, 5, 5, 6), W, grad=False)


def test_conv2d_of_whole_numbers():
    x, w = (np.arange(18).reshape(1, 3, 3, 2) % 5, np.arange(16).reshape(2, 2, 2, 2) - 7)
    assert_agrees(
        lambda x, w: tf.nn.conv2d(x, w, 1, "VALID"), x.astype(np.int32), w.astype(np.int32)
    )


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16])
def test_conv2d_in_half_precision(dtype):
    assert_agrees(
        lambda x, w: tf.nn.conv2d(x, w, 1, "SAME"), X.astype(dtype), W.astype(dtype), grad=False
    )


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("strides", [1, 2])
def test_conv3d(padding, strides):
    strides = [1, strides, strides, strides, 1]
    assert_agrees(lambda x, w: tf.nn.conv3d(x, w, strides, padding), X3, W3)


@pytest.mark.parametrize("padding", ["SAME", "VALID", EXPLICIT])
def test_conv1d_and_conv(padding):
    if padding in ("SAME", "VALID"):
        assert_agrees(lambda x, w: tf.nn.conv1d(x, w, 2, padding), random(2, 9, 3), random(4, 3, 5))
        assert_agrees(lambda x, w: tf.nn.convolution(x, w, padding=padding), X, W)
    how = {"padding": "EXPLICIT", "explicit_paddings": FLAT}
    how = {"padding": padding} if isinstance(padding, str) else how
    run = lambda x, w: tf.raw_ops.Conv(input=x, filter=w, strides=[1, 2, 1, 1], **how)
    assert_agrees(run, X, W, grad=False)


def test_conv_of_several_batch_dimensions():
    run = lambda x, w: tf.raw_ops.Conv(
        input=x, filter=w, strides=[1, 1, 1, 1], padding="SAME", batch_dims=2
    )
    assert_agrees(run, random(2, 3, 5, 5, 3), W, grad=False)


def test_conv_of_groups():
    """TensorFlow's CPU kernel of Conv knows none."""
    x, how = random(2, 5, 5, 6), {"strides": [1, 2, 2, 1], "padding": "SAME"}
    run = lambda x, w: tf.raw_ops.Conv(input=x, filter=w, groups=2, **how)
    want = tf.nn.conv2d(x, W, **how).numpy()
    assert_close(anyjax.from_tensorflow(run, x, W)(x, W), want, reduction=64)


@pytest.mark.parametrize("padding", ["SAME", "VALID", EXPLICIT])
@pytest.mark.parametrize("strides, dilations", [(1, None), (2, None), (1, (2, 2))])
def test_depthwise(padding, strides, dilations):
    run = lambda x, w: tf.nn.depthwise_conv2d(
        x, w, [1, strides, strides, 1], padding, dilations=dilations
    )
    # TensorFlow dilates by space_to_batch, which takes no explicit padding
    if dilations is None or isinstance(padding, str):
        assert_agrees(run, X, random(3, 2, 3, 2))


def test_separable():
    run = lambda x, d, p: tf.nn.separable_conv2d(x, d, p, [1, 1, 1, 1], "SAME")
    assert_agrees(run, X, random(3, 2, 3, 2), random(1, 1, 6, 4))


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("strides", [1, 2])
def test_transposed(padding, strides):
    shape = [2, 7, 6, 3]
    forward = tf.nn.conv2d(X, W, strides, padding)
    run = lambda y, w: tf.nn.conv2d_transpose(y, w, shape, strides, padding)
    assert_agrees(run, forward.numpy(), W)
    run = lambda x, y: tf.raw_ops.Conv2DBackpropFilter(
        input=x, filter_sizes=[3, 2, 3, 4], out_backprop=y, strides=[1, strides, strides, 1],
        padding=padding,
    )  # fmt: skip
    assert_agrees(run, X, forward.numpy())


def test_transposed_with_explicit_padding():
    how = {"strides": [1, 2, 1, 1], "padding": EXPLICIT}
    forward = tf.nn.conv2d(X, W, **how).numpy()
    assert_agrees(lambda y, w: tf.nn.conv2d_transpose(y, w, X.shape, **how), forward, W)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_transposed_3d(padding):
    how = {"strides": [1, 2, 1, 1, 1], "padding": padding}
    forward = tf.nn.conv3d(X3, W3, **how).numpy()
    assert_agrees(lambda y, w: tf.nn.conv3d_transpose(y, w, X3.shape, **how), forward, W3)
    run = lambda x, y: tf.raw_ops.Conv3DBackpropFilterV2(
        input=x, filter_sizes=W3.shape, out_backprop=y, **how
    )
    assert_agrees(run, X3, forward)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_transposed_depthwise(padding):
    w, how = random(3, 2, 3, 2), {"strides": [1, 1, 1, 1], "padding": padding}
    forward = tf.nn.depthwise_conv2d(X, w, **how).numpy()
    assert_agrees(
        lambda y, w: tf.nn.depthwise_conv2d_backprop_input(X.shape, w, y, **how), forward, w
    )
    assert_agrees(
        lambda x, y: tf.nn.depthwise_conv2d_backprop_filter(x, w.shape, y, **how), X, forward
    )


@pytest.mark.parametrize(
    "op, layouts, x, w",
    [
        (tf.nn.conv2d, ("NHWC", "NCHW"), X, W),
        (tf.nn.conv3d, ("NDHWC", "NCDHW"), X3, W3),
        (tf.nn.depthwise_conv2d, ("NHWC", "NCHW"), X, random(3, 2, 3, 2)),
    ],
)
def test_channels_first(op, layouts, x, w):
    """TensorFlow computes none of these on a CPU."""
    last, first = layouts
    at = [first.index(c) for c in last]  # of each dimension of the last
    turned = np.transpose(x, [last.index(c) for c in first])
    strides = dict(zip(last, [*[1, 2, 2, 2, 1][: x.ndim - 1], 1]))
    want = op(x, w, [strides[c] for c in last], "SAME", data_format=last).numpy()
    run = lambda x, w: op(x, w, [strides[c] for c in first], "SAME", data_format=first)
    model = anyjax.from_tensorflow(run, turned, w)
    assert_close(np.transpose(model(turned, w), at), want, reduction=64)
    jax.grad(lambda x, w: model.apply(model.params, x, w).sum(), (0, 1))(turned, w)


def test_versions_that_take_a_tensor_for_its_shape():
    how = {"strides": [1, 2, 2, 1], "padding": "SAME"}
    forward = tf.nn.conv2d(X, W, **how).numpy()
    raw = tf.raw_ops
    for new, old in (
        (
            lambda x, w, y: raw.Conv2DBackpropInputV2(input=x, filter=w, out_backprop=y, **how),
            raw.Conv2DBackpropInput(input_sizes=X.shape, filter=W, out_backprop=forward, **how),
        ),
        (
            lambda x, w, y: raw.Conv2DBackpropFilterV2(input=x, filter=w, out_backprop=y, **how),
            raw.Conv2DBackpropFilter(input=X, filter_sizes=W.shape, out_backprop=forward, **how),
        ),
    ):
        model = anyjax.from_tensorflow(new, X, W, forward)
        assert_close(model(X, W, forward), old.numpy(), reduction=64)


def test_packed_channels_are_refused():
    run = lambda x, w: tf.raw_ops.Conv2D(
        input=x, filter=w, strides=[1, 1, 1, 1], padding="SAME", data_format="NCHW_VECT_C"
    )
    with pytest.raises(ForwardFailed, match="data_format"):
        anyjax.from_tensorflow(run, X, W)(X, W)
