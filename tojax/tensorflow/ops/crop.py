"""Crops of an image at boxes, resized; glimpses around points."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from tojax.errors import Unsupported
from tojax.tensorflow.core.known import shape as sizes
from tojax.tensorflow.core.schema import Static, lowers

F = np.float32


def coordinates(first, last, size, count):
    """Where the lines of each crop lie on the image: [boxes, count]."""
    if count == 1:
        return (0.5 * (first + last) * (size - 1))[:, None]
    step = (last - first) * (size - 1) / (count - 1)
    return (first * (size - 1))[:, None] + np.arange(count, dtype=F) * step[:, None]


def crops(image, boxes, box_ind, crop_size, method, extrapolation_value):
    """Four pixels of the image for each of the crop, or the nearest one."""
    image = image.astype(F)
    (height, width), (rows, columns) = image.shape[1:3], map(int, crop_size)
    y = coordinates(boxes[:, 0], boxes[:, 2], height, rows)[:, :, None, None]
    x = coordinates(boxes[:, 1], boxes[:, 3], width, columns)[:, None, :, None]
    which = box_ind[:, None, None]
    at = lambda y, x: image[which, y[..., 0].astype(int), x[..., 0].astype(int)]
    if method == "nearest":
        half_up = lambda v: jnp.floor(v + 0.5)
        out = at(half_up(y), half_up(x))
    else:
        top, left = jnp.floor(y), jnp.floor(x)
        bottom, right = jnp.ceil(y), jnp.ceil(x)
        upper = at(top, left) + (at(top, right) - at(top, left)) * (x - left)
        lower = at(bottom, left) + (at(bottom, right) - at(bottom, left)) * (x - left)
        out = upper + (lower - upper) * (y - top)
    inside = (y >= 0) & (y <= height - 1) & (x >= 0) & (x <= width - 1)
    return jnp.where(inside, out, F(extrapolation_value))


@jax.custom_jvp
def of_values(out, other):
    """``out`` with the gradient of ``out`` and of ``other`` together."""
    return out


of_values.defjvp(lambda primals, tangents: (primals[0], tangents[0] + tangents[1]))


@lowers("CropAndResize")
def crop_and_resize(image, boxes, box_ind, crop_size: Static, method, extrapolation_value):
    """The gradient of the boxes is the linear one, also where the nearest pixel is taken."""
    how = box_ind, crop_size
    out = crops(image, boxes, *how, method, extrapolation_value)
    if method == "bilinear":
        return out
    linear = crops(jax.lax.stop_gradient(image), boxes, *how, "bilinear", extrapolation_value)
    return of_values(out, linear)


@lowers("CropAndResizeGradImage")
def crop_and_resize_of_image(grads, boxes, box_ind, image_size: Static, method, /, *rest):
    """The last parameter of TensorFlow's order is the dtype."""
    raise NotImplementedError


@lowers("CropAndResizeGradBoxes")
def crop_and_resize_of_boxes(grads, image, boxes, box_ind, method):
    run = lambda boxes: crops(image, boxes, box_ind, grads.shape[1:3], "bilinear", 0)
    return jax.vjp(run, boxes)[1](grads)[0]


@lowers("ExtractGlimpse")
def extract_glimpse(input, size: Static, offsets, centered, normalized, uniform_noise, noise):
    return glimpse(input, size, offsets, centered, normalized, uniform_noise, noise, 1)


@lowers("ExtractGlimpseV2")
def extract_glimpse_v2(input, size: Static, offsets, centered, normalized, uniform_noise, noise):
    return glimpse(input, size, offsets, centered, normalized, uniform_noise, noise, 2)
