"""Resizing with a kernel that widens where the image shrinks."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tojax.tensorflow.core.schema import Static, lowers
from tojax.tensorflow.ops.resize import apply

F = np.float32


def lanczos(radius):
    def kernel(x):
        safe = jnp.where(x <= 1e-3, 1, x)
        wave = radius * jnp.sin(np.pi * safe) * jnp.sin(np.pi * safe / radius)
        wave = wave / (np.pi**2 * safe * safe)
        return jnp.where(x > radius, 0, jnp.where(x <= 1e-3, 1, wave))

    return radius, kernel


def piecewise(near, far):
    """A cubic kernel: polynomials up to 1 and up to 2."""
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


def weights(size, out, scale, translation, kernel_type, antialias):
    """A row for each element of the result; its weights sum to 1 or, outside of the image, to 0."""
    radius, kernel = KERNELS[kernel_type]
    step = 1 / scale
    wide = jnp.maximum(step, 1) if antialias else F(1)
    at = ((np.arange(out, dtype=F) + F(0.5)) * step - step * translation)[:, None]
    near = lambda end: jnp.clip(end, 0, size - 1)
    first = near(jnp.ceil(at - radius * wide - F(0.5)))
    last = near(jnp.floor(at + radius * wide - F(0.5)))
    pixels = np.arange(size, dtype=F)
    found = kernel(abs(pixels + F(0.5) - at) * (1 / wide))
    inside = (pixels >= first) & (pixels <= last) & (at >= 0) & (at <= size)
    found = jnp.where(inside, found, 0)
    total = found.sum(1, keepdims=True)
    small = abs(total) < 1000 * jnp.finfo(F).tiny
    return jnp.where(small, found, found / jnp.where(small, 1, total))


def scaling(size, scale, translation, *how):
    scale, translation = lax.stop_gradient((jnp.asarray(scale), jnp.asarray(translation)))

    def run(images):
        matrices = [
            weights(n, int(m), scale[i], translation[i], *how)
            for i, (n, m) in enumerate(zip(images.shape[1:3], size))
        ]
        return apply(images.astype(F), *matrices)

    return run


@lowers("ScaleAndTranslate")
def scale_and_translate(images, size: Static, scale, translation, kernel_type, antialias):
    return scaling(size, scale, translation, kernel_type, antialias)(images)


@lowers("ScaleAndTranslateGrad")
def scale_and_translate_grad(grads, original_image, scale, translation, kernel_type, antialias):
    run = scaling(grads.shape[1:3], scale, translation, kernel_type, antialias)
    like = jax.ShapeDtypeStruct(original_image.shape, original_image.dtype)
    return jax.linear_transpose(run, like)(grads)[0]
