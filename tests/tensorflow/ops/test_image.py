"""Colors, gray ones and equal ones included."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tensorflow.agree import agree

RNG = np.random.default_rng(1)
X = RNG.random((2, 3, 4, 3)).astype(np.float32)
EDGES = np.array(
    [
        [0, 0, 0],
        [1, 1, 1],
        [0.5, 0.5, 0.2],
        [0.2, 0.5, 0.5],
        [0.5, 0.2, 0.5],
        [0, 0.3, 0],
        [1, 0, 0],
    ],
    np.float32,
)


@pytest.mark.parametrize("factor", [0.3, 2.0])
def test_contrast(factor):
    agree(lambda x: tf.image.adjust_contrast(x, factor), X, grad=False)
    agree(lambda x: tf.image.adjust_contrast(x, factor), (X[0] * 255).astype(np.uint8), grad=False)


def test_hue_and_saturation():
    for x in (X, EDGES[None]):
        agree(lambda x, d: tf.image.adjust_hue(x, d), x, np.float32(0.7), grad=False, vmap=False)
        agree(lambda x, d: tf.image.adjust_hue(x, d), x, np.float32(-0.9), grad=False, vmap=False)
        for scale in (0.4, 3.0):
            scale = np.float32(scale)
            agree(tf.image.adjust_saturation, x, scale, grad=False, vmap=False)
    agree(lambda x: tf.image.adjust_hue(x, 0.1), (X * 255).astype(np.uint8), vmap=False)


def test_conversions():
    for x in (X, EDGES):
        agree(tf.image.rgb_to_hsv, x)
        agree(tf.image.hsv_to_rgb, tf.image.rgb_to_hsv(x).numpy(), grad=False)
    agree(tf.image.rgb_to_hsv, X.astype(np.float64), grad=False)


@pytest.mark.parametrize(
    "function",
    [
        tf.image.rgb_to_yiq, tf.image.yiq_to_rgb, tf.image.rgb_to_yuv, tf.image.rgb_to_grayscale,
        lambda x: tf.image.adjust_brightness(x, 0.2), lambda x: tf.image.adjust_gamma(x, 0.7),
        tf.image.per_image_standardization,
    ],
)  # fmt: skip
def test_of_tf_image(function):
    agree(function, X)
