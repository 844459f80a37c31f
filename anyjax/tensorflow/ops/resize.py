"""Resizing of images: along one axis after the other, each a product with a matrix of weights.

The weights follow TensorFlow's kernels in float32: a row for each element of the result.
``ScaleAndTranslate`` has kernels that widen where the image shrinks.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.errors import Unsupported
from anyjax.numerics.sampling import lines
from anyjax.tensorflow.core.schema import Static, lowers, table

F = np.float32
LARGE = 1 << 16  # elements of a matrix
TABLE = 1024  # steps that a place between two pixels is rounded to for cubic weights


def step_of(size, out, align_corners) -> np.float32:
    """Returns how many elements of the input make one of the result.

    Raises:
      Unsupported: the input's size is a symbol.
    """
    if not isinstance(size, int):
        raise Unsupported(
            f"resizing of {size} lines, a symbolic size",
            why="the weights of its lines are worked out while tracing",
            do="give the image a fixed height and width; the batch may stay symbolic",
        )
    if align_corners and out > 1:
        return F(size - 1) / F(out - 1)
    return F(size) / F(out)


def refuse_both(align_corners, half_pixel_centers):
    if align_corners and half_pixel_centers:
        raise Unsupported(
            "resizing with align_corners=True and half_pixel_centers=True",
            why="TensorFlow refuses it: the two place the pixels differently",
            do="leave one of them out",
        )


def places(size, out, align_corners, half_pixel_centers):
    """Returns where each element of the result lies on the input."""
    refuse_both(align_corners, half_pixel_centers)
    step = step_of(size, out, align_corners)
    at = np.arange(out, dtype=F)
    return (at + F(0.5)) * step - F(0.5) if half_pixel_centers else at * step


def dense(at, weights, size):
    """Writes taps [out, taps] as a matrix [out, size]; the program makes large ones itself."""
    if len(at) * size > LARGE:
        columns = np.arange(size)
        taps = zip(at.T.astype(np.int32), weights.T.astype(F))
        return sum(jnp.where(a[:, None] == columns, w[:, None], F(0)) for a, w in taps)
    matrix = np.zeros((len(at), size), F)
    np.add.at(matrix, (np.arange(len(at))[:, None], at), weights)
    return matrix


def linear(size, out, *how):
    at = places(size, out, *how)
    low = np.floor(at)
    fraction = (at - low)[:, None]
    taps = np.stack([np.maximum(low, 0), np.minimum(np.ceil(at), size - 1)], 1).astype(int)
    return dense(taps, np.concatenate([1 - fraction, fraction], 1), size)


def cubic(size, out, align_corners, half_pixel_centers):
    """With half pixels outside taps have no weight, else the pixels at the ends take theirs."""
    at = places(size, out, align_corners, half_pixel_centers)
    low = np.floor(at)
    fraction = np.rint((at - low) * TABLE)[:, None] / TABLE
    x = abs(fraction - np.arange(-1, 3, dtype=F))
    a = F(-0.5 if half_pixel_centers else -0.75)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    weights = np.where(x <= 1, near, ((a * x - 5 * a) * x + 8 * a) * x - 4 * a)
    taps = low[:, None].astype(int) + np.arange(-1, 3)
    if half_pixel_centers:
        weights = np.where((taps >= 0) & (taps < size), weights, 0)
        weights = weights / weights.sum(1, keepdims=True)
    return dense(np.clip(taps, 0, size - 1), weights, size)


def area(size, out, align_corners, half_pixel_centers):
    """Weights each input element by the share that an element of the result covers."""
    step = step_of(size, out, align_corners)
    first = (np.arange(out, dtype=F) * step)[:, None]
    last = (np.arange(1, out + 1, dtype=F) * step)[:, None]
    reach = int(np.ceil(last - np.floor(first)).max(initial=1))
    at = np.floor(first) + np.arange(reach)
    cover = np.maximum(np.minimum(at + 1, last) - np.maximum(at, first), 0)
    return dense(np.clip(at, 0, size - 1).astype(int), cover / step, size)


def apply(images, height, width):
    """Multiplies by both matrices; the axis that shrinks more goes first."""
    ways = [(1, height), (2, width)]
    if height.shape[0] * width.shape[1] > height.shape[1] * width.shape[0]:
        ways.reverse()
    for axis, matrix in ways:
        if isinstance(matrix, np.ndarray) and np.array_equal(matrix, np.eye(len(matrix))):
            continue
        spec = "bhwc,oh->bowc" if axis == 1 else "bhwc,ow->bhoc"
        images = jnp.einsum(spec, images, matrix, precision=lax.Precision.HIGHEST)
    return images


def resizing(weights, size, *how):
    """Returns ``images -> images``; the result is float32."""

    def resize_images(images):
        matrices = [weights(n, int(m), *how) for n, m in zip(images.shape[1:3], size)]
        return apply(images.astype(F), *matrices)

    return resize_images


def image_grad(resize_images, grads, original_image):
    """Returns the gradient for the image."""
    like = jax.ShapeDtypeStruct(original_image.shape, original_image.dtype)
    return jax.linear_transpose(lambda x: resize_images(x).astype(grads.dtype), like)(grads)[0]


def _resize(weights):
    def lowering(images, size: Static, /, *how):
        return resizing(weights, size, *how)(images)

    return lowering


def _resize_grad(weights):
    def lowering(grads, original_image, /, *how):
        return image_grad(resizing(weights, grads.shape[1:3], *how), grads, original_image)

    return lowering


for _name, _weights in {"ResizeBilinear": linear, "ResizeBicubic": cubic}.items():
    table.update({_name: _resize(_weights), f"{_name}Grad": _resize_grad(_weights)})


@lowers("ResizeArea")
def resize_area(images, size: Static, align_corners):
    return resizing(area, size, align_corners, False)(images)


def nearest_places(size, out, align_corners, half_pixel_centers):
    refuse_both(align_corners, half_pixel_centers)
    step, at = step_of(size, out, align_corners), np.arange(out, dtype=F)
    at = (at + F(0.5)) * step if half_pixel_centers else at * step
    at = np.floor(at + F(0.5)) if align_corners else np.floor(at)
    return np.clip(at.astype(int), 0, max(size - 1, 0))


def nearest(size, *how):
    """Returns ``images -> images``."""

    def resize_images(images):
        for axis, out in zip((1, 2), map(int, size)):
            images = lines(images, nearest_places(images.shape[axis], out, *how), axis)
        return images

    return resize_images


@lowers("ResizeNearestNeighbor")
def resize_nearest(images, size: Static, /, *how):
    return nearest(size, *how)(images)


@lowers("ResizeNearestNeighborGrad")
def resize_nearest_grad(grads, size: Static, /, *how):
    like = jax.ShapeDtypeStruct((grads.shape[0], *map(int, size), grads.shape[3]), grads.dtype)
    return jax.linear_transpose(nearest(grads.shape[1:3], *how), like)(grads)[0]


# Scaling and translating with a kernel that widens where the image shrinks.


def lanczos(radius):
    def kernel(x):
        safe = jnp.where(x <= 1e-3, 1, x)
        wave = radius * jnp.sin(np.pi * safe) * jnp.sin(np.pi * safe / radius)
        wave = wave / (np.pi**2 * safe * safe)
        return jnp.where(x > radius, 0, jnp.where(x <= 1e-3, 1, wave))

    return radius, kernel


def piecewise(near, far):
    """Returns a cubic kernel: polynomials up to 1 and up to 2."""
    kernel = lambda x: jnp.where(x < 1, jnp.polyval(near, x), jnp.polyval(far, x))
    return 2, lambda x: jnp.where(x >= 2, 0, kernel(x))


# Name -> (radius, weight at a distance that is not negative).
KERNELS = {
    "lanczos1": lanczos(1),
    "lanczos3": lanczos(3),
    "lanczos5": lanczos(5),
    "gaussian": (1.5, lambda x: jnp.where(x >= 1.5, 0, jnp.exp(-2 * x * x))),
    "box": (1, lambda x: jnp.where(x < 0.5, 1, jnp.where(x == 0.5, 0.5, 0))),
    "triangle": (1, lambda x: jnp.maximum(1 - x, 0)),
    "keyscubic": piecewise(np.array([1.5, -2.5, 0, 1], F), np.array([-0.5, 2.5, -4, 2], F)),
    "mitchellcubic": piecewise(
        np.array([7 / 6, -2, 0, 8 / 9], F), np.array([-7 / 18, 2, -10 / 3, 16 / 9], F)
    ),
}


def kernel_weights(size, out, scale, translation, kernel_type, antialias):
    """Returns a row for each element of the result; it sums to 1 or, outside of the image, to 0."""
    radius, kernel = KERNELS[kernel_type]
    step = 1 / scale
    wide = jnp.maximum(step, 1) if antialias else F(1)
    at = ((np.arange(out, dtype=F) + F(0.5)) * step - step * translation)[:, None]
    near = lambda end: jnp.clip(end, 0, size - 1)
    first = near(jnp.ceil(at - radius * wide - F(0.5)))
    last = near(jnp.floor(at + radius * wide - F(0.5)))
    pixels = np.arange(size, dtype=F)
    weights = kernel(abs(pixels + F(0.5) - at) * (1 / wide))
    inside = (pixels >= first) & (pixels <= last) & (at >= 0) & (at <= size)
    weights = jnp.where(inside, weights, 0)
    total = weights.sum(1, keepdims=True)
    small = abs(total) < 1000 * jnp.finfo(F).tiny
    return jnp.where(small, weights, weights / jnp.where(small, 1, total))


def scaling(size, scale, translation, *how):
    scale, translation = lax.stop_gradient((jnp.asarray(scale), jnp.asarray(translation)))

    def resize_images(images):
        matrices = [
            kernel_weights(n, int(m), scale[i], translation[i], *how)
            for i, (n, m) in enumerate(zip(images.shape[1:3], size))
        ]
        return apply(images.astype(F), *matrices)

    return resize_images


@lowers("ScaleAndTranslate")
def scale_and_translate(images, size: Static, /, *how):
    return scaling(size, *how)(images)


@lowers("ScaleAndTranslateGrad")
def scale_and_translate_grad(grads, original_image, /, *how):
    return image_grad(scaling(grads.shape[1:3], *how), grads, original_image)
