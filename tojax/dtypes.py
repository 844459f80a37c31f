"""Dtypes as JAX sees them: what stays of a 64-bit type while x64 is off."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np


def x64() -> bool:
    """Whether JAX keeps 64-bit types.

    Example:
      >>> x64()
      False
    """
    return bool(jax.config.read("jax_enable_x64"))


def canonical(dtype) -> np.dtype:
    """The dtype that an array of ``dtype`` has inside JAX.

    Example:
      >>> canonical("int64")
      dtype('int32')
    """
    return jax.dtypes.canonicalize_dtype(dtype)


def is_float(dtype) -> bool:
    """Whether ``dtype`` can carry a gradient (real or complex floating point).

    Example:
      >>> is_float("bfloat16"), is_float("int32")
      (True, False)
    """
    return jnp.issubdtype(dtype, jnp.inexact)
