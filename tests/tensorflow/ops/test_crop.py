"""Crops at boxes with both gradients, glimpses, drawn boxes."""

import numpy as np
import pytest
import tensorflow as tf

import tojax
from tests.tensorflow.agree import agree
from tojax.errors import Unsupported

RNG = np.random.default_rng(1)
X = RNG.standard_normal((2, 5, 6, 3)).astype(np.float32)
BOXES = np.array(
    [[0.1, 0.2, 0.8, 0.9], [0.7, 0.3, 0.2, 0.75], [-0.3, 0.1, 1.3, 0.9], [0, 0, 1, 1]], np.float32
)
WHICH = np.array([0, 1, 1, 0], np.int32)
raw = tf.raw_ops


@pytest.mark.parametrize("method", ["bilinear", "nearest"])
@pytest.mark.parametrize("size", [(3, 4), (1, 5), (7, 1)])
def test_crop_and_resize(method, size):
    how = {"crop_size": size, "method": method, "extrapolation_value": 0.5}
    agree(lambda x, b: tf.image.crop_and_resize(x, b, WHICH, **how), X, BOXES)
    g = RNG.standard_normal((4, *size, 3)).astype(np.float32)
    run = lambda g, b: raw.CropAndResizeGradImage(
        grads=g, boxes=b, box_ind=WHICH, image_size=X.shape, T=tf.float32, method=method
    )
    agree(run, g, BOXES, grad=False, vmap=False)
    if method == "bilinear":
        run = lambda g, b: raw.CropAndResizeGradBoxes(grads=g, image=X, boxes=b, box_ind=WHICH)
        agree(run, g, BOXES, grad=False, vmap=False)


def test_crops_of_whole_numbers_at_traced_images():
    x = (np.abs(X) * 50).astype(np.uint8)
    agree(lambda x, b, i: tf.image.crop_and_resize(x, b, i, (3, 3)), x, BOXES, WHICH)


OFFSETS = np.array([[0.3, -0.6], [0.5, 0.2]], np.float32)


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("op", [raw.ExtractGlimpse, raw.ExtractGlimpseV2])
def test_glimpses(op, centered, normalized):
    how = {"centered": centered, "normalized": normalized, "uniform_noise": False, "noise": "zero"}
    offsets = OFFSETS if normalized else OFFSETS * 5
    agree(lambda x, o: op(input=x, size=(2, 3), offsets=o, **how), X, offsets, grad=False)


def test_noise_is_unsupported():
    run = lambda x: tf.image.extract_glimpse(x, (2, 3), OFFSETS)
    with pytest.raises(Unsupported, match="noise"):
        tojax.from_tensorflow(run, X)(X)


def test_drawn_boxes():
    x, boxes = np.abs(X), np.stack([BOXES, BOXES[::-1] * 0.8])
    agree(lambda x, b: raw.DrawBoundingBoxes(images=x, boxes=b), x, boxes, grad=False)
    colors = RNG.random((2, 3)).astype(np.float32)
    agree(tf.image.draw_bounding_boxes, x, boxes, colors, grad=False)
    agree(lambda x, b: raw.DrawBoundingBoxes(images=x, boxes=b), x[..., :1], boxes, grad=False)
