"""Images seen through a projective transformation."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tojax.tensorflow.core.schema import Static, lowers

F = np.float32


def folded(at, size, fill_mode):
    """Places outside of the image mapped into it; those that stay outside are filled."""
    if fill_mode == "CONSTANT":
        return at
    if fill_mode == "REFLECT":  # dcba|abcd|dcba
        rest = lax.rem(jnp.where(at < 0, -at - 1, at), F(2 * size))
        at = jnp.where(rest >= size, 2 * size - rest - 1, rest)
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
    """Images at places between their pixels; those outside are ``fill``."""
    height, width = images.shape[1:3]
    which = jnp.arange(images.shape[0])[:, None, None]

    def at(y, x):
        inside = ((y >= 0) & (y < height) & (x >= 0) & (x < width))[..., None]
        place = [jnp.clip(v, 0, n - 1).astype(np.int32) for v, n in ((y, height), (x, width))]
        return jnp.where(inside, images[which, *place], fill)

    if interpolation == "NEAREST":
        return at(*[jnp.trunc(v + jnp.copysign(F(0.5), v)) for v in (y, x)])
    top, left = jnp.floor(y), jnp.floor(x)
    down, along = (y - top)[..., None], (x - left)[..., None]
    row = lambda y: at(y, left) * (1 - along) + at(y, left + 1) * along
    return (row(top) * (1 - down) + row(top + 1) * down).astype(images.dtype)


@partial(jax.custom_jvp, nondiff_argnums=(3, 4, 5))
def projected(images, transforms, fill_value, shape, interpolation, fill_mode):
    return project(images, transforms, shape, interpolation, fill_mode, fill_value)


@projected.defjvp
def _projected_jvp(shape, interpolation, fill_mode, primals, tangents):
    """TensorFlow takes the inverse transformation for the transposed one."""
    images, transforms, _ = primals
    out = projected(*primals, shape, interpolation, fill_mode)
    matrices = jnp.pad(transforms, [(0, 0), (0, 1)], constant_values=1).reshape(-1, 3, 3)
    inverse = jnp.linalg.inv(matrices).reshape(-1, 9)
    inverse = inverse[:, :8] / inverse[:, 8:]
    back = lambda g: project(g, inverse, images.shape[1:3], interpolation, fill_mode, 0)
    return out, jax.linear_transpose(back, out)(tangents[0])[0]


@lowers("ImageProjectiveTransformV2")
def image_projective_transform(images, transforms, output_shape: Static, interpolation, fill_mode):
    shape = tuple(map(int, output_shape))
    return projected(images, transforms, 0.0, shape, interpolation, fill_mode)


@lowers("ImageProjectiveTransformV3")
def image_projective_transform_v3(
    images, transforms, output_shape: Static, fill_value, interpolation, fill_mode
):
    shape = tuple(map(int, output_shape))
    return projected(images, transforms, fill_value, shape, interpolation, fill_mode)
