"""The windows of an image or a volume as channels."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from tojax.tensorflow.core.schema import lowers


@lowers("ExtractImagePatches")
def image_patches(images, ksizes, strides, rates, padding):
    return windows(images, ksizes[1:-1], strides[1:-1], rates[1:-1], padding)


@lowers("ExtractVolumePatches")
def volume_patches(input, ksizes, strides, padding):
    return windows(input, ksizes[1:-1], strides[1:-1], [1] * 3, padding)


def windows(x, lengths, strides, rates, padding):
    """[n, *space, c] to [n, *places, product(lengths) * c]; copies alone, no product with ones."""
    extents = [(k - 1) * r + 1 for k, r in zip(lengths, rates)]
    pads = lax.padtype_to_pads(x.shape[1:-1], extents, strides, padding)
    x = lax.pad(x, np.zeros((), x.dtype), [(0, 0, 0), *((*p, 0) for p in pads), (0, 0, 0)])
    counts = [(n - e) // s + 1 for n, e, s in zip(x.shape[1:-1], extents, strides)]
    for i, (count, length) in enumerate(zip(counts, lengths)):
        starts = np.arange(count, dtype=np.int32) * strides[i]
        at = starts[:, None] + np.arange(length, dtype=np.int32) * rates[i]
        axis = 1 + 2 * i
        if strides[i] == length and rates[i] == 1:
            x = lax.slice_in_dim(x, 0, count * length, axis=axis)
            x = jnp.reshape(x, (*x.shape[:axis], count, length, *x.shape[axis + 1 :]))
        else:
            x = x.at[(*[slice(None)] * axis, at)].get(mode="promise_in_bounds")
    space = range(1, 2 * len(lengths) + 1)
    x = jnp.transpose(x, (0, *space[::2], *space[1::2], x.ndim - 1))
    return jnp.reshape(x, (x.shape[0], *counts, np.prod(lengths) * x.shape[-1]))
