"""Resizing, larger and smaller, with every way to place the corners, and back."""

import numpy as np
import pytest
import tensorflow as tf

import anyjax
from anyjax.errors import Unsupported
from anyjax.tensorflow.ops.resize import KERNELS
from tests.tensorflow.agree import assert_agrees
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=10)

RNG = np.random.default_rng(1)
X = RNG.standard_normal((2, 5, 6, 3)).astype(np.float32)
SIZES = [(8, 11), (3, 4), (5, 3), (10, 12), (1, 1), (5, 6)]
WAYS = [(False, False), (True, False), (False, True)]
raw = tf.raw_ops


@pytest.mark.parametrize("corners, centers", WAYS)
@pytest.mark.parametrize("name", ["Bilinear", "Bicubic", "NearestNeighbor"])
def test_resize(name, corners, centers):
    how = {"align_corners": corners, "half_pixel_centers": centers}
    op = getattr(raw, f"Resize{name}")
    for i, size in enumerate(SIZES):
        assert_agrees(lambda x, size=size: op(images=x, size=size, **how), X, vmap=not i)


@pytest.mark.parametrize("corners, centers", WAYS)
@pytest.mark.parametrize("name", ["Bilinear", "Bicubic", "NearestNeighbor"])
def test_operators_of_gradients(name, corners, centers):
    how = {"align_corners": corners, "half_pixel_centers": centers}
    op = getattr(raw, f"Resize{name}Grad")
    last = {"size": X.shape[1:3]} if name == "NearestNeighbor" else {"original_image": X}
    for shape in SIZES[:2]:
        g = RNG.standard_normal((2, *shape, 3)).astype(np.float32)
        assert_agrees(lambda g: op(grads=g, **last, **how), g, grad=False, vmap=False)


@pytest.mark.parametrize("corners", [False, True])
def test_area(corners):
    for size in SIZES:
        run = lambda x, size=size: raw.ResizeArea(images=x, size=size, align_corners=corners)
        assert_agrees(run, X, grad=False, vmap=False)


@pytest.mark.parametrize("name", ["Bilinear", "Bicubic", "NearestNeighbor", "Area"])
def test_other_dtypes(name):
    op = getattr(raw, f"Resize{name}")
    for dtype in (np.uint8, np.int32, np.float16):
        x = (np.abs(X) * 50).astype(dtype)
        assert_agrees(lambda x: op(images=x, size=(7, 4)), x, grad=False, vmap=False)


METHODS = ["bilinear", "nearest", "bicubic", "area", "lanczos3", "gaussian", "mitchellcubic"]


@pytest.mark.parametrize("method", METHODS)
def test_of_tf_image(method):
    for size, antialias in ((SIZES[0], False), (SIZES[1], True), (SIZES[1], False)):
        run = lambda x, s=size, a=antialias: tf.image.resize(x, s, method, antialias=a)
        assert_agrees(run, X, grad=method != "area", vmap=False)


def test_of_tf_image_keeping_the_ratio():
    assert_agrees(lambda x: tf.image.resize(x, (9, 7), preserve_aspect_ratio=True), X)
    assert_agrees(lambda x: tf.image.resize_with_pad(x, 9, 7), X)
    assert_agrees(lambda x: tf.image.resize_with_crop_or_pad(x, 4, 9), X)


def test_a_large_matrix_is_made_by_the_program():
    x = RNG.standard_normal((1, 260, 2, 1)).astype(np.float32)
    for name in ("Bilinear", "Bicubic"):
        op = getattr(raw, f"Resize{name}")
        run = lambda x, op=op: op(images=x, size=(300, 2), half_pixel_centers=True)
        assert_close(anyjax.from_tensorflow(run, x)(x), run(x).numpy(), reduction=64)


@pytest.mark.parametrize("op", [raw.ResizeBilinear, raw.ResizeNearestNeighbor])
def test_both_ways_at_once_are_refused(op):
    run = lambda x: op(images=x, size=(8, 11), align_corners=True, half_pixel_centers=True)
    with pytest.raises(Unsupported, match="align_corners=True and half_pixel_centers=True"):
        anyjax.from_tensorflow(run, X)(X)


# ScaleAndTranslate with every kernel; partly outside of the image; scales that are traced.


MOVES = [((1.6, 0.55), (0.3, -0.4)), ((0.3, 2.0), (-1.0, 4.0))]


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
def test_scale_and_translate(kernel, antialias):
    how = {"kernel_type": kernel, "antialias": antialias}
    for scale, move in MOVES:
        run = lambda x, scale=scale, move=move: raw.ScaleAndTranslate(
            images=x, size=(7, 4), scale=scale, translation=move, **how
        )
        assert_agrees(run, X, vmap=False)
    g = RNG.standard_normal((2, 7, 4, 3)).astype(np.float32)
    run = lambda g: raw.ScaleAndTranslateGrad(
        grads=g, original_image=X, scale=MOVES[0][0], translation=MOVES[0][1], **how
    )
    assert_agrees(run, g, grad=False, vmap=False)


def test_traced_scale():
    run = lambda x, scale, move: raw.ScaleAndTranslate(
        images=x, size=(7, 4), scale=scale, translation=move
    )
    assert_agrees(run, X, *np.array(MOVES[0], np.float32))
