"""TensorFlow's dtypes as numpy's, which are JAX's but for width."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import tensorflow as tf

from tojax.dtypes import canonical


@lru_cache(None)
def to_numpy(kind: int) -> np.dtype:
    """The dtype of a ``DataType`` enum, as wide as TensorFlow's; strings are objects.

    Quantized types count as the integers that store them.
    """
    found = tf.as_dtype(kind)
    if found in (tf.string, tf.resource, tf.variant):
        return np.dtype(object)
    found = getattr(tf, found.name.removeprefix("q")) if found.is_quantized else found
    return np.dtype(found.as_numpy_dtype)


def to_jax(kind: int) -> np.dtype:
    """The dtype that arrays of this ``DataType`` have inside JAX."""
    dtype = to_numpy(kind)
    return dtype if dtype.hasobject else canonical(dtype)


def of_array(dtype) -> tf.DType:
    """TensorFlow's name for an array's dtype."""
    return tf.as_dtype(np.dtype(dtype))
