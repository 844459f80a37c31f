"""Images: colors, crops and glimpses, drawn boxes, projective transformations."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.errors import Unsupported
from anyjax.tensorflow.core.schema import Static, lowers

F = np.float32
COLORS = np.array(  # of drawn boxes
    [
        [1, 1, 0, 1], [0, 0, 1, 1], [1, 0, 0, 1], [0, 1, 0, 1], [0.5, 0, 0.5, 1],
        [0.5, 0.5, 0, 1], [0.5, 0, 0, 1], [0, 0, 0.5, 1], [0, 1, 1, 1], [1, 0, 1, 1],
    ],
    F,
)  # fmt: skip


# Colors.


@lowers("AdjustContrastv2")
def adjust_contrast(images, contrast_factor):
    """The mean is that of each channel of each image."""
    factor = contrast_factor.astype(images.dtype)
    mean = jnp.mean(images, (-3, -2), keepdims=True)
    return (images - mean) * factor + mean


def hue_range_value(images):
    """Returns the hue (0 to 1), the range and the maximum; of equal colors the first counts."""
    r, g, b = (images[..., i] for i in range(3))
    red, green = (r >= g) & (r >= b), g >= b
    most = jnp.where(red, r, jnp.where(green, g, b))
    blue_least, green_least = (b <= r) & (b <= g), (g <= r) & (g < b)
    width = most - jnp.where(blue_least, b, jnp.where(green_least, g, r))
    gray = width <= 0
    over = jnp.where(gray, 1, width) * 6
    third = np.array(1 / 3, images.dtype)
    hue = jnp.where(red, (g - b) / over, 0)
    hue = jnp.where(red, hue, jnp.where(green, (b - r) / over + third, (r - g) / over + 2 * third))
    hue = jnp.where(gray, 0, hue)
    return jnp.where(hue < 0, hue + 1, hue), width, most


def saturation_of(width, most):
    positive = most > 0
    return jnp.where(positive, width / jnp.where(positive, most, 1), 0)


def shares(hue):
    """Returns how much of each color a hue has."""
    at = hue * 6
    return [jnp.clip(x, 0, 1) for x in (abs(at - 3) - 1, 2 - abs(at - 2), 2 - abs(at - 4))]


@lowers("RGBToHSV")
def rgb_to_hsv(images):
    """The gradient of the saturation leaves out the colors that are 0."""
    hue, _, most = hue_range_value(images)
    colored = jnp.where(images > 0, images, lax.stop_gradient(images))
    return jnp.stack([hue, saturation_of(*hue_range_value(colored)[1:]), most], -1)


@lowers("HSVToRGB")
def hsv_to_rgb(images):
    hue, saturation, value = (images[..., i] for i in range(3))
    return jnp.stack([(1 - saturation + saturation * x) * value for x in shares(hue)], -1)


@lowers("AdjustHue")
def adjust_hue(images, delta):
    hue, width, most = hue_range_value(images)
    hue = (hue + delta.astype(images.dtype)) % 1
    return jnp.stack([most - width + width * x for x in shares(hue)], -1)


@lowers("AdjustSaturation")
def adjust_saturation(images, scale):
    hue, width, most = hue_range_value(images)
    saturation = jnp.clip(saturation_of(width, most) * scale.astype(images.dtype), 0, 1)
    return jnp.stack([(1 - saturation + saturation * x) * most for x in shares(hue)], -1)


# Crops of boxes, resized; glimpses around points.


def crop_lines(first, last, size, count):
    """Returns where the lines of each crop lie on the image: [boxes, count]."""
    if count == 1:
        return (0.5 * (first + last) * (size - 1))[:, None]
    step = (last - first) * (size - 1) / (count - 1)
    return (first * (size - 1))[:, None] + np.arange(count, dtype=F) * step[:, None]


def crops(image, boxes, box_ind, crop_size, method, outside):
    """Interpolates each pixel of a crop from four of the image, or takes the nearest one."""
    image = image.astype(F)
    (height, width), (rows, columns) = image.shape[1:3], map(int, crop_size)
    y = crop_lines(boxes[:, 0], boxes[:, 2], height, rows)[:, :, None, None]
    x = crop_lines(boxes[:, 1], boxes[:, 3], width, columns)[:, None, :, None]
    batch, integer = box_ind[:, None, None], lambda v: lax.stop_gradient(v)[..., 0].astype(np.int32)
    pixel = lambda y, x: image[batch, integer(y), integer(x)]
    if method == "nearest":
        out = pixel(jnp.floor(y + 0.5), jnp.floor(x + 0.5))
    else:
        y0, x0 = (lax.stop_gradient(jnp.floor(v)) for v in (y, x))
        y1, x1 = jnp.ceil(y), jnp.ceil(x)
        row = lambda y: pixel(y, x0) + (pixel(y, x1) - pixel(y, x0)) * (x - x0)
        out = row(y0) + (row(y1) - row(y0)) * (y - y0)
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
    """Returns windows whose corners ``start`` computes from the offsets; outside pixels are 0."""
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
    batch = jnp.arange(input.shape[0])[:, None, None]
    pixels = input[batch, jnp.clip(y, 0, shape[0] - 1), jnp.clip(x, 0, shape[1] - 1)]
    return jnp.where(inside[..., None], pixels, F(0))


@lowers("ExtractGlimpse")
def extract_glimpse(input, size: Static, offsets, centered, /, *how):
    def start(at, shape, size):
        return ((at + shape) / 2 if centered else at) - size / 2

    return glimpse(input, size, offsets, *how, start)


@lowers("ExtractGlimpseV2")
def extract_glimpse_v2(input, size: Static, offsets, centered, normalized, uniform_noise, noise):
    """Offsets in pixels are those of the corner; centered ones count from the middle."""

    def start(at, shape, size):
        if not centered:
            return at
        return (at + shape) / 2 - size / 2 if normalized else at + shape / 2

    return glimpse(input, size, offsets, normalized, uniform_noise, noise, start)


# Boxes drawn on images.


@lowers("DrawBoundingBoxesV2")
def draw_bounding_boxes_v2(images, boxes, colors):
    """One box after another: a later one covers the earlier ones."""
    height, width, depth = images.shape[1:]
    if not colors.size:
        colors = COLORS if depth != 1 else np.ones((10, 1), F)
    ends = (boxes * np.array([height - 1, width - 1] * 2, F)).astype(np.int32)
    y, x = np.arange(height)[None, :, None], np.arange(width)[None, None, :]

    def draw(images, box_and_color):
        (y0, x0, y1, x1), color = box_and_color[0].T[..., None, None], box_and_color[1]
        within = (y >= y0) & (y <= y1) & (x >= x0) & (x <= x1)
        line = (y == y0) | (y == y1) | (x == x0) | (x == x1)
        return jnp.where((within & line)[..., None], color.astype(images.dtype), images), None

    count = boxes.shape[1]
    table = jnp.asarray(colors)[np.arange(count) % len(colors), :depth]
    return lax.scan(draw, images, (ends.swapaxes(0, 1), table))[0]


@lowers("DrawBoundingBoxes")
def draw_bounding_boxes(images, boxes):
    return draw_bounding_boxes_v2(images, boxes, np.zeros((0, 0), F))


# Projective transformations.


def folded(at, size, fill_mode):
    """Maps positions outside of the image into it; with ``CONSTANT`` they stay outside."""
    if fill_mode == "CONSTANT":
        return at
    if fill_mode == "REFLECT":  # dcba|abcd|dcba
        phase = lax.rem(jnp.where(at < 0, -at - 1, at), F(2 * size))
        at = jnp.where(phase >= size, 2 * size - phase - 1, phase)
    elif fill_mode == "WRAP" and size > 1:  # abcd|abcd|abcd
        turns = lambda x: jnp.trunc(x / (size - 1))
        below, above = at + size * (turns(-at) + 1), at - size * turns(at)
        at = jnp.where(at < 0, below, jnp.where(at > size - 1, above, at))
    return jnp.clip(at, 0, size - 1)


def project(images, transforms, shape, interpolation, fill_mode, fill_value):
    t = [transforms[:, i, None, None] for i in range(8)]
    y, x = np.arange(shape[0], dtype=F)[:, None], np.arange(shape[1], dtype=F)[None, :]
    depth = t[6] * x + t[7] * y + 1
    over = jnp.where(depth == 0, 1, depth)
    x, y = (t[0] * x + t[1] * y + t[2]) / over, (t[3] * x + t[4] * y + t[5]) / over
    y, x = (folded(v, n, fill_mode) for v, n in zip((y, x), images.shape[1:3]))
    fill = jnp.asarray(fill_value, images.dtype)
    return jnp.where((depth == 0)[..., None], fill, sample(images, y, x, interpolation, fill))


def sample(images, y, x, interpolation, fill):
    """Reads images at positions between their pixels; outside they are ``fill``."""
    height, width = images.shape[1:3]
    batch = jnp.arange(images.shape[0])[:, None, None]

    def pixel(y, x):
        inside = ((y >= 0) & (y < height) & (x >= 0) & (x < width))[..., None]
        index = [jnp.clip(v, 0, n - 1).astype(np.int32) for v, n in ((y, height), (x, width))]
        return jnp.where(inside, images[batch, *index], fill)

    if interpolation == "NEAREST":
        return pixel(*[jnp.trunc(v + jnp.copysign(F(0.5), v)) for v in (y, x)])
    y0, x0 = jnp.floor(y), jnp.floor(x)
    down, along = (y - y0)[..., None], (x - x0)[..., None]
    row = lambda y: pixel(y, x0) * (1 - along) + pixel(y, x0 + 1) * along
    return (row(y0) * (1 - down) + row(y0 + 1) * down).astype(images.dtype)


@partial(jax.custom_jvp, nondiff_argnums=(3, 4, 5))
def projected(images, transforms, fill_value, shape, interpolation, fill_mode):
    return project(images, transforms, shape, interpolation, fill_mode, fill_value)


@projected.defjvp
def _projected_jvp(shape, interpolation, fill_mode, primals, tangents):
    """TensorFlow uses the inverse transformation as the transposed one."""
    images, transforms, _ = primals
    out = projected(*primals, shape, interpolation, fill_mode)
    matrices = jnp.pad(transforms, [(0, 0), (0, 1)], constant_values=1).reshape(-1, 3, 3)
    inverse = jnp.linalg.inv(matrices).reshape(-1, 9)
    inverse = inverse[:, :8] / inverse[:, 8:]
    back = lambda g: project(g, inverse, images.shape[1:3], interpolation, fill_mode, 0)
    return out, jax.linear_transpose(back, out)(tangents[0])[0]


@lowers("ImageProjectiveTransformV2")
def image_projective_transform(images, transforms, output_shape: Static, /, *how):
    return projected(images, transforms, 0.0, tuple(map(int, output_shape)), *how)


@lowers("ImageProjectiveTransformV3")
def image_projective_transform_v3(images, transforms, output_shape: Static, fill_value, /, *how):
    return projected(images, transforms, fill_value, tuple(map(int, output_shape)), *how)
