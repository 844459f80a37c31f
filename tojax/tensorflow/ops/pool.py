"""Pooling."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from tojax.tensorflow.core.schema import lowers


@lowers("MaxPool")
def max_pool(input, ksize, strides, padding, explicit_paddings, data_format):
    lowest = -np.inf if jnp.issubdtype(input.dtype, jnp.floating) else jnp.iinfo(input.dtype).min
    return lax.reduce_window(input, np.array(lowest, input.dtype), lax.max, ksize, strides, padding)
