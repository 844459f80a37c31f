"""TensorFlow's dtypes as numpy's; JAX's are the same, some of them narrower."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import tensorflow as tf

from anyjax.dtypes import canonical


@lru_cache(None)
def to_numpy(kind: int) -> np.dtype:
    """Returns the dtype of a ``DataType`` enum, as wide as TensorFlow's; strings are objects.

    Quantized types count as the integers that store them.
    """
    dtype = tf.as_dtype(kind)
    if dtype in (tf.string, tf.resource, tf.variant):
        return np.dtype(object)
    dtype = getattr(tf, dtype.name.removeprefix("q")) if dtype.is_quantized else dtype
    return np.dtype(dtype.as_numpy_dtype)


def to_jax(kind: int) -> np.dtype:
    """Returns the dtype that arrays of this ``DataType`` have in JAX."""
    dtype = to_numpy(kind)
    return dtype if dtype.hasobject else canonical(dtype)


def of_array(dtype) -> tf.DType:
    """Returns TensorFlow's dtype for an array's."""
    return tf.as_dtype(np.dtype(dtype))
