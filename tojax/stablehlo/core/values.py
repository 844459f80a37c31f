"""Values that are known while tracing, symbolic sizes among them, as JAX takes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from jax import lax

from tojax import known
from tojax.dtypes import canonical


def as_jax(value: Any) -> Any:
    """A known value as an array or a literal; symbolic sizes become integers of the program.

    Example:
      >>> as_jax(np.ones(2)).shape, as_jax(np.array([2, 3], object)).tolist()
      ((2,), [2, 3])
    """
    if not known.is_known(value) or value.dtype != object:
        return known.as_jax(value)
    sizes = lax.shape_as_value(tuple(value.ravel()))
    return lax.convert_element_type(sizes, canonical("int64")).reshape(value.shape)


def sizes(values: Iterable[Any]) -> tuple:
    """A known vector as a shape; symbolic sizes stay symbols.

    Example:
      >>> sizes(np.array([2, 3]))
      (2, 3)
    """
    return tuple(int(x) if isinstance(x, (int, np.integer)) else x for x in values)
