"""Crops of an image at boxes, resized; glimpses around points; boxes drawn on images."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tojax.errors import Unsupported
from tojax.tensorflow.core.schema import Static, lowers

F = np.float32


def lines(first, last, size, count):
    """Where the lines of each crop lie on the image: [boxes, count]."""
    if count == 1:
        return (0.5 * (first + last) * (size - 1))[:, None]
    step = (last - first) * (size - 1) / (count - 1)
    return (first * (size - 1))[:, None] + np.arange(count, dtype=F) * step[:, None]


def crops(image, boxes, box_ind, crop_size, method, outside):
    """Four pixels of the image for each of the crop, or the nearest one."""
    image = image.astype(F)
    (height, width), (rows, columns) = image.shape[1:3], map(int, crop_size)
    y = lines(boxes[:, 0], boxes[:, 2], height, rows)[:, :, None, None]
    x = lines(boxes[:, 1], boxes[:, 3], width, columns)[:, None, :, None]
    which, whole = box_ind[:, None, None], lambda v: lax.stop_gradient(v)[..., 0].astype(np.int32)
    at = lambda y, x: image[which, whole(y), whole(x)]
    if method == "nearest":
        out = at(jnp.floor(y + 0.5), jnp.floor(x + 0.5))
    else:
        top, left = (lax.stop_gradient(jnp.floor(v)) for v in (y, x))
        bottom, right = jnp.ceil(y), jnp.ceil(x)
        row = lambda y: at(y, left) + (at(y, right) - at(y, left)) * (x - left)
        out = row(top) + (row(bottom) - row(top)) * (y - top)
    inside = (y >= 0) & (y <= height - 1) & (x >= 0) & (x <= width - 1)
    return jnp.where(inside, out, F(outside))


@lowers("CropAndResize")
def crop_and_resize(image, boxes, box_ind, crop_size: Static, method, extrapolation_value):
    """The gradient of the boxes is the linear one, also where the nearest pixel is taken."""
    out = crops(image, boxes, box_ind, crop_size, method, extrapolation_value)
    if method == "bilinear":
        return out
    linear = crops(lax.stop_gradient(image), boxes, box_ind, crop_size, "bilinear", 0)
    return out + linear - lax.stop_gradient(linear)


@lowers("CropAndResizeGradImage")
def crop_and_resize_of_image(grads, boxes, box_ind, image_size: Static, T, method):
    like = jax.ShapeDtypeStruct(tuple(map(int, image_size)), T)
    run = lambda image: crops(image, boxes, box_ind, grads.shape[1:3], method, 0)
    return jax.linear_transpose(run, like)(grads)[0]


@lowers("CropAndResizeGradBoxes")
def crop_and_resize_of_boxes(grads, image, boxes, box_ind, method):
    run = lambda boxes: crops(image, boxes, box_ind, grads.shape[1:3], method, 0)
    return jax.vjp(run, boxes)[1](grads)[0]


def glimpse(input, size, offsets, normalized, uniform_noise, noise, start):
    """Windows whose corner ``start`` tells from the offsets; what lies outside is 0."""
    if uniform_noise or noise != "zero":
        raise Unsupported(
            f"glimpses with {noise} noise outside of the image",
            why="the noise is drawn by TensorFlow",
            do='extract the glimpses with noise="zero"',
        )
    shape, size = np.array(input.shape[1:3]), np.array(size)
    corner = start(offsets * shape.astype(F) if normalized else offsets, shape, size)
    corner = corner.astype(np.int32)
    y, x = (corner[:, i, None] + np.arange(size[i]) for i in (0, 1))
    y, x = y[:, :, None], x[:, None, :]
    inside = (y >= 0) & (y < shape[0]) & (x >= 0) & (x < shape[1])
    which = jnp.arange(input.shape[0])[:, None, None]
    taken = input[which, jnp.clip(y, 0, shape[0] - 1), jnp.clip(x, 0, shape[1] - 1)]
    return jnp.where(inside[..., None], taken, F(0))


@lowers("ExtractGlimpse")
def extract_glimpse(input, size: Static, offsets, centered, normalized, uniform_noise, noise):
    def start(at, shape, size):
        return ((at + shape) / 2 if centered else at) - size / 2

    return glimpse(input, size, offsets, normalized, uniform_noise, noise, start)


@lowers("ExtractGlimpseV2")
def extract_glimpse_v2(input, size: Static, offsets, centered, normalized, uniform_noise, noise):
    """Offsets in pixels are of the corner, from the middle where they are centered."""

    def start(at, shape, size):
        if not centered:
            return at
        return (at + shape) / 2 - size / 2 if normalized else at + shape / 2

    return glimpse(input, size, offsets, normalized, uniform_noise, noise, start)


COLORS = np.array(
    [
        [1, 1, 0, 1], [0, 0, 1, 1], [1, 0, 0, 1], [0, 1, 0, 1], [0.5, 0, 0.5, 1],
        [0.5, 0.5, 0, 1], [0.5, 0, 0, 1], [0, 0, 0.5, 1], [0, 1, 1, 1], [1, 0, 1, 1],
    ],
    F,
)  # fmt: skip


@lowers("DrawBoundingBoxesV2")
def draw_bounding_boxes_v2(images, boxes, colors):
    """One box after another, as a later one covers those before."""
    height, width, depth = images.shape[1:]
    if not colors.size:
        colors = COLORS if depth != 1 else np.ones((10, 1), F)
    ends = (boxes * np.array([height - 1, width - 1] * 2, F)).astype(np.int32)
    y, x = np.arange(height)[None, :, None], np.arange(width)[None, None, :]

    def draw(images, given):
        (top, left, bottom, right), color = given[0].T[..., None, None], given[1]
        within = (y >= top) & (y <= bottom) & (x >= left) & (x <= right)
        line = (y == top) | (y == bottom) | (x == left) | (x == right)
        return jnp.where((within & line)[..., None], color.astype(images.dtype), images), None

    count = boxes.shape[1]
    table = jnp.asarray(colors)[np.arange(count) % len(colors), :depth]
    return lax.scan(draw, images, (ends.swapaxes(0, 1), table))[0]


@lowers("DrawBoundingBoxes")
def draw_bounding_boxes(images, boxes):
    return draw_bounding_boxes_v2(images, boxes, np.zeros((0, 0), F))
