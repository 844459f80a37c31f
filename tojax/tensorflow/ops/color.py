"""Colors: contrast, hue and saturation."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from tojax.tensorflow.core.schema import lowers


@lowers("AdjustContrastv2")
def adjust_contrast(images, contrast_factor):
    """Away from the mean of each channel of each image."""
    factor = contrast_factor.astype(images.dtype)
    mean = jnp.mean(images, (-3, -2), keepdims=True)
    return (images - mean) * factor + mean


def parts(images):
    """(hue from 0 to 1, range, maximum); of equal colors the first counts."""
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
    """How much of each color a hue has."""
    at = hue * 6
    return [jnp.clip(x, 0, 1) for x in (abs(at - 3) - 1, 2 - abs(at - 2), 2 - abs(at - 4))]


@lowers("RGBToHSV")
def rgb_to_hsv(images):
    """The gradient of the saturation leaves out the colors that are 0."""
    hue, _, most = parts(images)
    colored = jnp.where(images > 0, images, lax.stop_gradient(images))
    return jnp.stack([hue, saturation_of(*parts(colored)[1:]), most], -1)


@lowers("HSVToRGB")
def hsv_to_rgb(images):
    hue, saturation, value = (images[..., i] for i in range(3))
    return jnp.stack([(1 - saturation + saturation * x) * value for x in shares(hue)], -1)


@lowers("AdjustHue")
def adjust_hue(images, delta):
    hue, width, most = parts(images)
    hue = (hue + delta.astype(images.dtype)) % 1
    return jnp.stack([most - width + width * x for x in shares(hue)], -1)


@lowers("AdjustSaturation")
def adjust_saturation(images, scale):
    hue, width, most = parts(images)
    saturation = jnp.clip(saturation_of(width, most) * scale.astype(images.dtype), 0, 1)
    return jnp.stack([(1 - saturation + saturation * x) * most for x in shares(hue)], -1)
