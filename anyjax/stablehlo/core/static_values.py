"""Known values: numpy arrays whose content decides shapes, beside JAX arrays that are computed.

Sizes of a shape-polymorphic program are symbols; arrays of them have the dtype object.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeGuard

import jax
import numpy as np
from jax.typing import ArrayLike

from anyjax.dtypes import canonical, fitting
from anyjax.errors import DataDependent

Value = jax.Array | np.ndarray | np.generic  # computed, or known


def is_known(value: object) -> TypeGuard[np.ndarray]:
    """Returns whether a value is known while tracing: a numpy array.

    Example:
      >>> import numpy as np
      >>> is_known(np.ones(2)), is_known(jax.numpy.ones(2))
      (True, False)
    """
    return isinstance(value, (np.ndarray, np.generic))


def known(value: ArrayLike, what: str) -> np.ndarray:
    """Returns known values as a numpy array, those of a concrete JAX array too.

    Raises:
      DataDependent: they are traced.

    Example:
      >>> known(jax.numpy.arange(3), "the shape").tolist()
      [0, 1, 2]
    """
    if isinstance(value, jax.core.Tracer):
        error = DataDependent(
            f"{what} has to be known when the program is traced, and is computed from its inputs",
            why="Shapes must be 1D sequences of concrete values of integer type: JAX compiles a "
            "program for fixed ones",
            do="pass what decides it as a numpy array that no transformation traces, or fix it in "
            "the model",
        )
        error.value = value
        raise error
    return np.asarray(value)


def as_jax(value: Any) -> Any:
    """Converts a known value to JAX; a scalar stays numpy's, to become a literal, and strings stay.

    Example:
      >>> import numpy as np
      >>> as_jax(np.int64(3)).dtype, type(as_jax(np.ones(2))).__name__
      (dtype('int32'), 'ArrayImpl')
    """
    if not is_known(value):
        return value
    values = np.asarray(value)
    if values.dtype == object:
        return values if _strings(values) else _sizes(values)
    narrowed = fitting(values).astype(canonical(values.dtype))
    return narrowed if not narrowed.ndim else jax.numpy.asarray(narrowed)


def sizes(values: Iterable[Any]) -> tuple:
    """Returns a known vector as a shape; symbolic sizes stay symbols.

    Example:
      >>> import numpy as np
      >>> sizes(np.array([2, 3]))
      (2, 3)
    """
    return tuple(int(x) if isinstance(x, (int, np.integer)) else x for x in values)


def _strings(values: np.ndarray) -> bool:
    return any(isinstance(x, (bytes, str)) for x in values.flat)


def _sizes(values: np.ndarray) -> jax.Array:
    """Computes symbolic sizes as integers of the program."""
    vector = jax.lax.shape_as_value(tuple(values.ravel()))
    return jax.lax.convert_element_type(vector, canonical("int64")).reshape(values.shape)


Static, Known, Entries = "Static", "Known", "Entries"  # annotations of a lowering's parameters


def modes(function: Callable) -> list[str]:
    """Reads the annotation of each parameter: "Static" (values that have to be known), "Known"
    (numpy arrays if they are known), "Entries" (a vector whose entries may be known) or "".

    Example:
      >>> def reshape(x, shape: Static): ...
      >>> modes(reshape)
      ['', 'Static']
    """
    code = getattr(inspect.unwrap(function), "__code__", None)
    by_name = getattr(function, "__annotations__", {})
    names = code.co_varnames[: code.co_argcount] if code else ()
    annotations = [str(by_name.get(name, "")).strip("'\"") for name in names]
    return [x if x in (Static, Known, Entries) else "" for x in annotations]


def fixed(value: Any) -> Any:
    """Stops the gradient of a value."""
    return value if is_known(value) else jax.lax.stop_gradient(value)
