"""Windows: blocks to and from channels or batches, dilation, patches."""

import numpy as np
import pytest
import tensorflow as tf

import anyjax
from anyjax.errors import Unsupported
from tests.tensorflow.agree import assert_agrees

pytestmark = pytest.mark.sample(every=10)

raw = tf.raw_ops
X = np.arange(192, dtype=np.float32).reshape(2, 4, 6, 4)


def test_depth():
    assert_agrees(lambda x: tf.nn.space_to_depth(x, 2), X)
    assert_agrees(lambda x: tf.nn.depth_to_space(x, 2), X)


@pytest.mark.parametrize("name", ["SpaceToDepth", "DepthToSpace"])
def test_channels_first(name):
    """TensorFlow has no kernel for it on a CPU."""
    op = getattr(raw, name)
    call = lambda x, form: op(input=x, block_size=2, data_format=form)
    model = anyjax.from_tensorflow(lambda x: call(x, "NCHW"), np.moveaxis(X, 3, 1))
    want = np.moveaxis(call(X, "NHWC").numpy(), 3, 1)
    np.testing.assert_array_equal(model(np.moveaxis(X, 3, 1)), want)
    vectors = np.zeros((1, 4, 2, 2, 4), np.int8)
    model = anyjax.from_tensorflow(lambda x: call(x, "NCHW_VECT_C"), vectors)
    with pytest.raises(Unsupported, match="NCHW_VECT_C"):
        model(vectors)


@pytest.mark.parametrize(
    "block, pairs", [([2, 3], [[0, 0], [2, 1]]), ([2], [[1, 3]]), ([1, 1], [[0, 0], [0, 0]])]
)
def test_batch(block, pairs):
    assert_agrees(lambda x: tf.space_to_batch(x, block, pairs), X)
    assert_agrees(lambda x: tf.batch_to_space(x, block, [[0, 1]] * len(block)), np.repeat(X, 3, 0))


def test_version_one():
    assert_agrees(lambda x: raw.SpaceToBatch(input=x, paddings=[[1, 1], [0, 2]], block_size=2), X)
    crops = [[1, 0], [0, 2]]
    assert_agrees(
        lambda x: raw.BatchToSpace(input=x, crops=crops, block_size=2), np.repeat(X, 2, 0)
    )


# Dilation2D and its gradients' operators.


RNG = np.random.default_rng(1)
PLANES = RNG.standard_normal((2, 6, 5, 3)).astype(np.float32)
W = RNG.standard_normal((3, 2, 3)).astype(np.float32)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("strides, rates", [(1, 1), (2, 1), (1, 2)])
def test_dilation2d(padding, strides, rates):
    how = {"strides": [1, strides, strides, 1], "padding": padding}
    run = lambda x, w: tf.nn.dilation2d(
        x, w, data_format="NHWC", dilations=[1, rates, rates, 1], **how
    )
    assert_agrees(run, PLANES, W)
    if padding == "SAME":
        assert_agrees(run, np.zeros_like(PLANES), np.zeros_like(W))  # ties
    back = {"rates": [1, rates, rates, 1], **how}
    y = run(PLANES, W).numpy()
    for op in (tf.raw_ops.Dilation2DBackpropInput, tf.raw_ops.Dilation2DBackpropFilter):
        call = lambda x, w, y, op=op: op(input=x, filter=w, out_backprop=y, **back)
        assert_agrees(call, PLANES, W, y, grad=False)


def test_erosion2d_and_whole_numbers():
    run = lambda x, w: tf.nn.erosion2d(x, w, [1, 1, 1, 1], "SAME", "NHWC", [1, 1, 1, 1])
    assert_agrees(run, PLANES, W)
    run = lambda x, w: tf.nn.dilation2d(x, w, [1, 1, 1, 1], "SAME", "NHWC", [1, 1, 1, 1])
    assert_agrees(run, (PLANES * 9).astype(np.int32), (W * 9).astype(np.int32))


# Patches as channels.


IMAGES = np.arange(140, dtype=np.float32).reshape(2, 5, 7, 2)
IMAGES[0, 0, 0, 0] = np.inf
VOLUMES = np.arange(480, dtype=np.float32).reshape(2, 4, 5, 6, 2)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(
    "how", [(2, 2, 1), (3, 1, 1), (3, 2, 2), (1, 3, 1), ((2, 3), (2, 3), (1, 1))]
)
def test_image_patches(how, padding):
    sizes, strides, rates = ([1, *np.broadcast_to(x, 2), 1] for x in how)
    assert_agrees(lambda x: tf.image.extract_patches(x, sizes, strides, rates, padding), IMAGES)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_volume_patches(padding):
    sizes, strides = [1, 2, 3, 2, 1], [1, 2, 1, 3, 1]
    assert_agrees(lambda x: tf.extract_volume_patches(x, sizes, strides, padding), VOLUMES)
