"""Known values: numpy arrays whose content decides shapes, beside JAX arrays that are computed.

Sizes of a shape-polymorphic program are symbols; arrays of them have the dtype object.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from tojax.dtypes import canonical, fitting
from tojax.errors import DataDependent


def is_known(value: Any) -> bool:
    """Whether a value is there while tracing, as numpy's.

    Example:
      >>> import numpy as np
      >>> is_known(np.ones(2)), is_known(jax.numpy.ones(2))
      (True, False)
    """
    return isinstance(value, (np.ndarray, np.generic))


def known(value: Any, what: str) -> np.ndarray:
    """The values themselves, of a concrete JAX array too.

    Raises:
      DataDependent: they are traced.

    Example:
      >>> known(jax.numpy.arange(3), "the shape").tolist()
      [0, 1, 2]
    """
    if isinstance(value, jax.core.Tracer):
        raise DataDependent(
            f"{what} has to be known when the program is traced, and is computed from its inputs",
            why="JAX compiles a program for fixed shapes",
            do="pass what decides it as a numpy array that no transformation traces, or fix it in "
            "the model",
        )
    return np.asarray(value)


def as_jax(value: Any) -> Any:
    """A known value as JAX takes it: a scalar stays numpy's, so that it is a literal.

    Example:
      >>> import numpy as np
      >>> as_jax(np.int64(3)).dtype, type(as_jax(np.ones(2))).__name__
      (dtype('int32'), 'ArrayImpl')
    """
    if not is_known(value):
        return value
    values = np.asarray(value)
    if values.dtype == object:
        return values
    narrowed = fitting(values).astype(canonical(values.dtype))
    return narrowed if not narrowed.ndim else jax.numpy.asarray(narrowed)


Static, Known, Entries = "Static", "Known", "Entries"  # annotations of a lowering's parameters


def modes(function: Callable) -> list[str]:
    """What the annotation of each parameter says: "Static" (its values have to be known), "Known"
    (they come as numpy's if they are), "Entries" (a vector, of which some may be) or nothing.

    Example:
      >>> def reshape(x, shape: Static): ...
      >>> modes(reshape)
      ['', 'Static']
    """
    code = getattr(inspect.unwrap(function), "__code__", None)
    found = getattr(function, "__annotations__", {})
    said = [found.get(name, "") for name in code.co_varnames[: code.co_argcount]] if code else []
    return [x if x in (Static, Known, Entries) else "" for x in (str(x).strip("'\"") for x in said)]
