"""Windows as channels."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tensorflow.agree import agree

X = np.arange(140, dtype=np.float32).reshape(2, 5, 7, 2)
X[0, 0, 0, 0] = np.inf
V = np.arange(480, dtype=np.float32).reshape(2, 4, 5, 6, 2)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(
    "how", [(2, 2, 1), (3, 1, 1), (3, 2, 2), (1, 3, 1), ((2, 3), (2, 3), (1, 1))]
)
def test_image_patches(how, padding):
    sizes, strides, rates = ([1, *np.broadcast_to(x, 2), 1] for x in how)
    agree(lambda x: tf.image.extract_patches(x, sizes, strides, rates, padding), X)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_volume_patches(padding):
    sizes, strides = [1, 2, 3, 2, 1], [1, 2, 1, 3, 1]
    agree(lambda x: tf.extract_volume_patches(x, sizes, strides, padding), V)
