"""Dtypes as JAX sees them: what stays of a 64-bit type while x64 is off."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from anyjax.errors import Unsupported


def x64() -> bool:
    """Returns whether JAX keeps 64-bit types.

    Example:
      >>> x64()
      False
    """
    return bool(jax.config.read("jax_enable_x64"))


def canonical(dtype) -> np.dtype:
    """Returns the dtype that an array of ``dtype`` has inside JAX.

    Example:
      >>> canonical("int64")
      dtype('int32')
    """
    return jax.dtypes.canonicalize_dtype(dtype)


def shape_of(array) -> jax.ShapeDtypeStruct:
    """Returns the shape and the dtype that an array, also one of numpy's, has inside JAX.

    Example:
      >>> shape_of(np.ones(2))
      ShapeDtypeStruct(shape=(2,), dtype=float32)
    """
    dtype = jax.dtypes.canonicalize_dtype(array.dtype, allow_extended_dtype=True)
    return jax.ShapeDtypeStruct(array.shape, dtype)


def fitting(values: np.ndarray) -> np.ndarray:
    """Integers that JAX can narrow as they are; the limits of 64 bits, which mean "none", become
    those of 32.

    Raises:
      Unsupported: a 64-bit integer does not fit 32 bits while x64 is off; JAX itself would wrap it.

    Example:
      >>> fitting(np.array([1, 2**63 - 1])).tolist(), fitting(np.array(-(2**63))).tolist()
      ([1, 2147483647], -2147483648)
    """
    dtype = canonical(values.dtype)
    if values.dtype.kind not in "iu" or dtype == values.dtype or not values.size:
        return values
    wide, narrow = np.iinfo(values.dtype), np.iinfo(dtype)
    if narrow.min <= values.min() and values.max() <= narrow.max:
        return values
    clipped = np.asarray(values.clip(narrow.min, narrow.max))  # of a 0-d array, a scalar
    lost = values[(values != clipped) & (values != wide.min) & (values != wide.max)]
    if lost.size:
        raise Unsupported(
            f"{values.dtype} values such as {lost[0]} do not fit 32 bits",
            why="JAX keeps 32-bit integers unless x64 is on",
            do='call jax.config.update("jax_enable_x64", True) first',
        )
    return clipped


def is_float(dtype) -> bool:
    """Returns whether ``dtype`` can carry a gradient (real or complex floating point).

    Example:
      >>> is_float("bfloat16"), is_float("int32")
      (True, False)
    """
    return jnp.issubdtype(dtype, jnp.inexact)
