"""Images: colors, crops and glimpses, drawn boxes, functions of tf.image, projections."""

import numpy as np
import pytest
import tensorflow as tf

import anyjax
from anyjax.errors import Unsupported
from tests.tensorflow.agree import assert_agrees

pytestmark = pytest.mark.sample(every=10)

# Colors, gray ones and equal ones included.


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
    assert_agrees(lambda x: tf.image.adjust_contrast(x, factor), X, grad=False)
    assert_agrees(
        lambda x: tf.image.adjust_contrast(x, factor), (X[0] * 255).astype(np.uint8), grad=False
    )


def test_hue_and_saturation():
    for x in (X, EDGES[None]):
        assert_agrees(
            lambda x, d: tf.image.adjust_hue(x, d), x, np.float32(0.7), grad=False, vmap=False
        )
        assert_agrees(
            lambda x, d: tf.image.adjust_hue(x, d), x, np.float32(-0.9), grad=False, vmap=False
        )
        for scale in (0.4, 3.0):
            scale = np.float32(scale)
            assert_agrees(tf.image.adjust_saturation, x, scale, grad=False, vmap=False)
    assert_agrees(lambda x: tf.image.adjust_hue(x, 0.1), (X * 255).astype(np.uint8), vmap=False)


def test_conversions():
    for x in (X, EDGES):
        assert_agrees(tf.image.rgb_to_hsv, x)
        assert_agrees(tf.image.hsv_to_rgb, tf.image.rgb_to_hsv(x).numpy(), grad=False)
    assert_agrees(tf.image.rgb_to_hsv, X.astype(np.float64), grad=False)


@pytest.mark.parametrize(
    "function",
    [
        tf.image.rgb_to_yiq, tf.image.yiq_to_rgb, tf.image.rgb_to_yuv, tf.image.rgb_to_grayscale,
        lambda x: tf.image.adjust_brightness(x, 0.2), lambda x: tf.image.adjust_gamma(x, 0.7),
        tf.image.per_image_standardization,
    ],
)  # fmt: skip
def test_of_tf_image(function):
    assert_agrees(function, X)


# Crops of boxes with both gradients, glimpses, drawn boxes.


IMAGES = RNG.standard_normal((2, 5, 6, 3)).astype(np.float32)
BOXES = np.array(
    [[0.1, 0.2, 0.8, 0.9], [0.7, 0.3, 0.2, 0.75], [-0.3, 0.1, 1.3, 0.9], [0, 0, 1, 1]], np.float32
)
BOX_IMAGE = np.array([0, 1, 1, 0], np.int32)
raw = tf.raw_ops


@pytest.mark.parametrize("method", ["bilinear", "nearest"])
@pytest.mark.parametrize("size", [(3, 4), (1, 5), (7, 1)])
def test_crop_and_resize(method, size):
    how = {"crop_size": size, "method": method, "extrapolation_value": 0.5}
    assert_agrees(lambda x, b: tf.image.crop_and_resize(x, b, BOX_IMAGE, **how), IMAGES, BOXES)
    g = RNG.standard_normal((4, *size, 3)).astype(np.float32)
    run = lambda g, b: raw.CropAndResizeGradImage(
        grads=g, boxes=b, box_ind=BOX_IMAGE, image_size=IMAGES.shape, T=tf.float32, method=method
    )
    assert_agrees(run, g, BOXES, grad=False, vmap=False)
    if method == "bilinear":
        run = lambda g, b: raw.CropAndResizeGradBoxes(
            grads=g, image=IMAGES, boxes=b, box_ind=BOX_IMAGE
        )
        assert_agrees(run, g, BOXES, grad=False, vmap=False)


def test_crops_of_whole_numbers_at_traced_images():
    x = (np.abs(IMAGES) * 50).astype(np.uint8)
    assert_agrees(lambda x, b, i: tf.image.crop_and_resize(x, b, i, (3, 3)), x, BOXES, BOX_IMAGE)


OFFSETS = np.array([[0.3, -0.6], [0.5, 0.2]], np.float32)


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("op", [raw.ExtractGlimpse, raw.ExtractGlimpseV2])
def test_glimpses(op, centered, normalized):
    how = {"centered": centered, "normalized": normalized, "uniform_noise": False, "noise": "zero"}
    offsets = OFFSETS if normalized else OFFSETS * 5
    assert_agrees(
        lambda x, o: op(input=x, size=(2, 3), offsets=o, **how), IMAGES, offsets, grad=False
    )


def test_noise_is_unsupported():
    run = lambda x: tf.image.extract_glimpse(x, (2, 3), OFFSETS)
    with pytest.raises(Unsupported, match="noise"):
        anyjax.from_tensorflow(run, IMAGES)(IMAGES)


def test_drawn_boxes():
    x, boxes = np.abs(IMAGES), np.stack([BOXES, BOXES[::-1] * 0.8])
    assert_agrees(lambda x, b: raw.DrawBoundingBoxes(images=x, boxes=b), x, boxes, grad=False)
    colors = RNG.random((2, 3)).astype(np.float32)
    assert_agrees(tf.image.draw_bounding_boxes, x, boxes, colors, grad=False)
    assert_agrees(
        lambda x, b: raw.DrawBoundingBoxes(images=x, boxes=b), x[..., :1], boxes, grad=False
    )


# Functions of tf.image that are made of several operators.


CLEAN = RNG.random((2, 12, 14, 3)).astype(np.float32)
NOISY = np.clip(CLEAN + 0.1 * RNG.standard_normal(CLEAN.shape), 0, 1).astype(np.float32)
image = tf.image


@pytest.mark.parametrize(
    "function",
    [
        image.rot90, lambda x: image.rot90(x, 3), image.flip_left_right, image.flip_up_down,
        image.transpose, lambda x: image.central_crop(x, 0.5),
        lambda x: image.pad_to_bounding_box(x, 1, 2, 15, 17),
        lambda x: image.crop_to_bounding_box(x, 1, 2, 5, 7),
        lambda x: image.resize_with_crop_or_pad(x, 9, 17), image.sobel_edges,
        image.total_variation, image.image_gradients,
        lambda x: image.extract_patches(x, [1, 3, 3, 1], [1, 2, 2, 1], [1, 1, 1, 1], "SAME"),
        lambda x: image.convert_image_dtype(x, tf.uint8), image.grayscale_to_rgb,
    ],
)  # fmt: skip
def test_of_one_image(function):
    x = CLEAN[..., :1] if function is image.grayscale_to_rgb else CLEAN
    assert_agrees(function, x, vmap=False)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: image.psnr(x, y, 1.0), lambda x, y: image.ssim(x, y, 1.0),
        lambda x, y: image.ssim_multiscale(x, y, 1.0, power_factors=(0.4, 0.6), filter_size=5),
    ],
)  # fmt: skip
def test_of_two_images(function):
    assert_agrees(function, CLEAN, NOISY, vmap=False, depth=10_000)


# Projective transformations in every mode.


TURNS = np.array(
    [[0.8, 0.3, -1.3, -0.2, 1.1, 0.4, 0.01, -0.02], [1, 0, -9.3, 0, 1, 13.7, 0, 0]], np.float32
)


@pytest.mark.parametrize("interpolation", ["NEAREST", "BILINEAR"])
@pytest.mark.parametrize("fill", ["CONSTANT", "REFLECT", "WRAP", "NEAREST"])
def test_transforms(interpolation, fill):
    how = {"interpolation": interpolation, "fill_mode": fill}
    run = lambda x, t: raw.ImageProjectiveTransformV3(
        images=x, transforms=t, output_shape=(7, 4), fill_value=0.5, **how
    )
    assert_agrees(run, IMAGES, TURNS, vmap=False)
    assert_agrees(run, IMAGES, TURNS[:1], grad=False)
    run = lambda x: raw.ImageProjectiveTransformV2(
        images=x, transforms=TURNS[:1], output_shape=(5, 6), **how
    )
    assert_agrees(run, IMAGES)
    assert_agrees(run, (IMAGES * 9).astype(np.int32), vmap=False)


def test_places_at_infinity():
    turn = np.array([[1, 0, 0, 0, 1, 0, -0.5, 0]], np.float32)
    run = lambda x: raw.ImageProjectiveTransformV3(
        images=x, transforms=turn, output_shape=(5, 6), fill_value=0.5, interpolation="NEAREST"
    )
    assert_agrees(run, IMAGES, grad=False)
