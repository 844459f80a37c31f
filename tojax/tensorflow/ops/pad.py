"""Padding."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tojax.tensorflow.core.known import shape as sizes
from tojax.tensorflow.core.schema import Static, lowers

MODES = {"REFLECT": "reflect", "SYMMETRIC": "symmetric"}


@lowers("Pad")
def pad(input, paddings: Static):
    return pad_v2(input, paddings, np.zeros((), input.dtype))


@lowers("PadV2")
def pad_v2(input, paddings: Static, constant_values):
    """TensorFlow has no gradient for the constant."""
    widths = [(*sizes(pair), 0) for pair in paddings]
    return lax.pad(input, lax.stop_gradient(constant_values), widths)


@lowers("MirrorPad")
def mirror_pad(input, paddings: Static, mode):
    return jnp.pad(input, [sizes(pair) for pair in paddings], MODES[mode])


@lowers("MirrorPadGrad")
def mirror_pad_grad(input, paddings: Static, mode):
    shape = [n - sum(pair) for n, pair in zip(input.shape, map(sizes, paddings))]
    padded = lambda x: mirror_pad(x, paddings, mode)
    return jax.linear_transpose(padded, jax.ShapeDtypeStruct(shape, input.dtype))(input)[0]
