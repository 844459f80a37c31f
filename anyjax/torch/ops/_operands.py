"""Helpers of all families: operands as ``lax`` wants them, and torch's way to name axes.

``jnp`` would do this too, at several times the tracing time.
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

from anyjax.dtypes import canonical, x64
from anyjax.errors import Unsupported
from anyjax.torch.core.dtypes import TO_TORCH, promote, scalar_dtype, to_jax
from anyjax.torch.core.sizes import as_array
from anyjax.torch.data_dependent.assertions import require

NUMBERS = (bool, int, float, complex)
INT = np.dtype("int64")
SHORT_INTEGERS = {np.dtype(name) for name in ("int8", "uint8", "int16", "uint16")}


def default_float() -> np.dtype:
    """Returns the dtype that torch makes of integers where a function needs floating point."""
    return to_jax(torch.get_default_dtype())


def default_int() -> np.dtype:
    """torch's dtype of indices and of integer sums, as JAX has it."""
    return canonical(INT)


def exact(x) -> bool:
    """Whether an array holds integers or bools."""
    return x.dtype.kind in "iub"


def floating(x):
    """Integers and bools as torch's default float, anything else as it is."""
    return lax.convert_element_type(x, default_float()) if x.dtype.kind in "iub" else x


def is_short(x) -> bool:
    """Whether an array holds 16-bit floats."""
    return x.dtype.itemsize == 2 and x.dtype.kind not in "iu"


def wide(x):
    """16-bit floats as float32: torch computes sums and compositions of functions in float32.

    None stays None.
    """
    return x if x is None or not is_short(x) else lax.convert_element_type(x, np.float32)


def widened(function):
    """A lowering that computes in float32 what its first operand has in 16 bits, rounded once."""

    @functools.wraps(function)
    def lowering(self, *rest):
        if not is_short(self):
            return function(self, *rest)
        out = function(wide(self), *(wide(x) if isinstance(x, jax.Array) else x for x in rest))
        narrow = lambda x: cast(x, self.dtype) if x.dtype == np.float32 else x
        return tuple(map(narrow, out)) if isinstance(out, tuple) else narrow(out)

    return lowering


def same(x, /):
    """The lowering of copies, aliases and the like: as values they are their argument."""
    return x


def like(x, value):
    """A number in the dtype of ``x``."""
    return x.dtype.type(value)


def cast(x, dtype, /):
    """To ``dtype``, which may be None.

    Floats beyond 8 and 16 bits wrap, as on torch's CPU; beyond 32 bits, which C leaves open, they
    are the nearest integer there is, and NaN is 0.
    """
    if dtype is None or x.dtype == dtype:
        return x
    if not exact(x) and np.dtype(dtype) in SHORT_INTEGERS:
        x = lax.convert_element_type(x, np.int32)
    return lax.convert_element_type(x, dtype)


def is_number(value) -> bool:
    """Whether a value is a Python number or a symbolic size; a numpy scalar, which may be one, has
    its own dtype.
    """
    is_python = isinstance(value, NUMBERS) and not isinstance(value, np.generic)
    return is_python or jax.export.is_symbolic_dim(value)


def common(*values) -> np.dtype:
    """torch's common dtype of arrays and numbers, as JAX has it."""
    kinds = []
    for v in values:
        array = hasattr(v, "ndim")
        kinds.append((TO_TORCH[v.dtype], 2 if v.ndim else 1) if array else (scalar_dtype(v), 0))
    return to_jax(promote(kinds))


def number(value, dtype: np.dtype):
    """A Python number in an array's dtype; limits of 64 bits become those of 32, 8 bits wrap.

    A symbolic size, too.
    """
    if type(value) not in NUMBERS and jax.export.is_symbolic_dim(value):
        return lax.convert_element_type(as_array(value), dtype)
    if dtype.kind not in "iu" or isinstance(value, complex):
        return dtype.type(value)
    value = int(value)
    limits = np.iinfo(dtype)
    if limits.min <= value <= limits.max or dtype.itemsize < 4:
        return np.asarray(value).astype(dtype)[()]
    if abs(value) >= 2**63 - 1:
        return dtype.type(limits.max if value > 0 else limits.min)
    raise Unsupported(
        f"the number {value} does not fit {dtype}",
        why="torch refuses it, too" if x64() else "JAX keeps 32-bit integers unless x64 is on",
        do="cast the tensor to int64 first"
        if x64()
        else 'call jax.config.update("jax_enable_x64", True) first',
    )


def broadcast(x, shape):
    """An array or number of lower rank, or with axes of length 1, to ``shape``."""
    x_shape = getattr(x, "shape", ())
    if x_shape == shape:
        return x
    return lax.broadcast_in_dim(x, shape, range(len(shape) - len(x_shape), len(shape)))


def binary_of(function):
    """Makes a lowering of a ``lax`` function of two operands."""
    return lambda x, y, /: function(*operands(x, y))


def operands(*values, dtype=None):
    """Arrays and numbers as arrays of one dtype, the common one; of one shape, but for scalars."""
    if len(values) == 2 and dtype is None:  # most: no more is to be done
        x, y = values
        same = getattr(x, "shape", None) == getattr(y, "shape", ()) and hasattr(y, "ndim")
        if same and x.dtype == y.dtype:
            return values
    arrays = [v for v in values if hasattr(v, "ndim")]  # quicker than is_number
    if not arrays:
        dtype = dtype or common(*values)
        return [number(v, dtype) for v in values]
    first = dtype or arrays[0].dtype
    if len(arrays) < len(values) or any(a.dtype != first for a in arrays):
        dtype = dtype or common(*values)
        values = [cast(v, dtype) if hasattr(v, "ndim") else number(v, dtype) for v in values]
        arrays = [v for v in values if v.ndim]
    if len(arrays) > 1 and any(a.shape != arrays[0].shape for a in arrays):
        shape = lax.broadcast_shapes(*[a.shape for a in arrays])
        values = [broadcast(v, shape) if v.ndim else v for v in values]
    return values


def floats(*values):
    """``operands`` of a function of floats: where their common dtype is an integer one, which may
    not hold each of them, all are torch's default float.
    """
    dtype = common(*values)
    return operands(*values, dtype=default_float() if dtype.kind in "iub" else dtype)


def dividends(x, y):
    """``operands`` of a division, which for integers is by no 0."""
    first, second = operands(x, y)
    if exact(first):
        require(second, lambda divisor: divisor != 0, "an integer is divided by 0")
    return first, second


def select(condition, x, y):
    """``x`` where the condition holds, else ``y``; each may be a number or need broadcasting."""
    chosen = condition, *operands(x, y)
    shape = lax.broadcast_shapes(*[v.shape for v in chosen])
    return lax.select(*[broadcast(v, shape) for v in chosen])


def absolute(x, /):
    """|x| with gradient 0 at 0, where ``lax.abs`` has 1; both sides of ``max`` share it there."""
    if x.dtype.kind in "biuc":
        return x if x.dtype.kind in "bu" else lax.abs(x)
    return lax.max(x, lax.neg(x))


def axes_of(x, dim) -> tuple[int, ...]:
    """torch's ``dim`` (None, a number, a list; none or an empty list means all) as sorted axes."""
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return tuple(range(x.ndim))
    dims = [dim] if isinstance(dim, int) else dim
    return tuple(sorted({d % x.ndim for d in dims})) if x.ndim else ()


def length(x, axes) -> int:
    """How many elements one reduction over ``axes`` sees."""
    return math.prod(x.shape[a] for a in axes)


def along(function):
    """A lowering that needs an axis: in torch a 0-d tensor has one, of length 1."""

    @functools.wraps(function)
    def lowering(self, *rest):
        if self.ndim:
            return function(self, *rest)
        out = function(lax.reshape(self, (1,)), *rest)
        flat = lambda x: jnp.reshape(x, ())
        return tuple(map(flat, out)) if isinstance(out, tuple) else flat(out)

    return lowering
