"""Known values: numpy arrays whose content decides shapes, beside JAX arrays that are computed.

Sizes of a shape-polymorphic program are symbols; arrays of them have the dtype object.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from tojax.dtypes import canonical, fitting
from tojax.errors import DataDependent


def is_known(value: Any) -> bool:
    """Whether a value is there while tracing."""
    return isinstance(value, (np.ndarray, np.generic))


def known(value: Any, what: str) -> np.ndarray:
    """The values themselves.

    Raises:
      DataDependent: they are traced.
    """
    if is_known(value):
        return np.asarray(value)
    if isinstance(value, jax.core.Tracer):
        raise DataDependent(
            f"{what} has to be known when the program is traced, and is computed from its inputs",
            why="JAX compiles a program for fixed shapes",
            do="pass what decides it as a numpy array that no transformation traces, or fix it in "
            "the model",
        )
    return np.asarray(value)


def as_jax(value: Any) -> Any:
    """What a lowering gets for a known value: a scalar stays numpy's, so that it is a literal."""
    if not is_known(value):
        return value
    values = np.asarray(value)
    if values.dtype == object:
        return values
    narrowed = fitting(values).astype(canonical(values.dtype))
    return narrowed if not narrowed.ndim else jax.numpy.asarray(narrowed)


def fixed(value: Any) -> Any:
    """A value that nothing is differentiated by."""
    return value if is_known(value) else jax.lax.stop_gradient(value)


def shape(values: Any) -> tuple:
    """A known vector as a shape."""
    return tuple(x if not isinstance(x, (int, np.integer)) else int(x) for x in values)
