"""Blocks of space to and from channels or batches."""

import numpy as np
import pytest
import tensorflow as tf

import tojax
from tests.tensorflow.agree import agree
from tojax.errors import Unsupported

raw = tf.raw_ops
X = np.arange(192, dtype=np.float32).reshape(2, 4, 6, 4)


def test_depth():
    agree(lambda x: tf.nn.space_to_depth(x, 2), X)
    agree(lambda x: tf.nn.depth_to_space(x, 2), X)


@pytest.mark.parametrize("name", ["SpaceToDepth", "DepthToSpace"])
def test_channels_first(name):
    """TensorFlow has no kernel for it on a CPU."""
    op = getattr(raw, name)
    call = lambda x, form: op(input=x, block_size=2, data_format=form)
    model = tojax.from_tensorflow(lambda x: call(x, "NCHW"), np.moveaxis(X, 3, 1))
    want = np.moveaxis(call(X, "NHWC").numpy(), 3, 1)
    np.testing.assert_array_equal(model(np.moveaxis(X, 3, 1)), want)
    vectors = np.zeros((1, 4, 2, 2, 4), np.int8)
    model = tojax.from_tensorflow(lambda x: call(x, "NCHW_VECT_C"), vectors)
    with pytest.raises(Unsupported, match="NCHW_VECT_C"):
        model(vectors)


@pytest.mark.parametrize(
    "block, pairs", [([2, 3], [[0, 0], [2, 1]]), ([2], [[1, 3]]), ([1, 1], [[0, 0], [0, 0]])]
)
def test_batch(block, pairs):
    agree(lambda x: tf.space_to_batch(x, block, pairs), X)
    agree(lambda x: tf.batch_to_space(x, block, [[0, 1]] * len(block)), np.repeat(X, 3, 0))


def test_version_one():
    agree(lambda x: raw.SpaceToBatch(input=x, paddings=[[1, 1], [0, 2]], block_size=2), X)
    crops = [[1, 0], [0, 2]]
    agree(lambda x: raw.BatchToSpace(input=x, crops=crops, block_size=2), np.repeat(X, 2, 0))
