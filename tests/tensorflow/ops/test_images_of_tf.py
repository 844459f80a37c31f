"""Functions of tf.image that are made of several operators."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tensorflow.agree import agree

RNG = np.random.default_rng(1)
X = RNG.random((2, 12, 14, 3)).astype(np.float32)
Y = np.clip(X + 0.1 * RNG.standard_normal(X.shape), 0, 1).astype(np.float32)
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
    x = X[..., :1] if function is image.grayscale_to_rgb else X
    agree(function, x, vmap=False)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: image.psnr(x, y, 1.0), lambda x, y: image.ssim(x, y, 1.0),
        lambda x, y: image.ssim_multiscale(x, y, 1.0, power_factors=(0.4, 0.6), filter_size=5),
    ],
)  # fmt: skip
def test_of_two_images(function):
    agree(function, X, Y, vmap=False, depth=10_000)
