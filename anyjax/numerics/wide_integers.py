"""64-bit integers of a program, which JAX computes in 32 bits while x64 is off: what may need more
is computed in floats beside. A number that wrapped is off by 2**32, which no rounding is.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from anyjax import warn_once
from anyjax.dtypes import is_float, x64
from anyjax.errors import UncheckedValues, Unsupported
from anyjax.private_names import need
from anyjax.typing import PyTree

STEP = 1 << 24  # a sum with a number below, such as the next position, is not checked
REAL = jnp.float32
SUMS = {"add", "addv2", "sub", "subtract", "assignaddvariableop", "assignsubvariableop"}
CASTS = {"cast", "convert"}
QUOTIENTS = {"div", "divide", "floordiv", "truncatediv"}  # of the least number by -1
ROOTS = {"reducel2"}  # computed in floats
SHIFTS = {"bitshift", "leftshift", "shift_left"}
ARITHMETIC = """abs addn accumulatenv2 batchmatmul batchmatmulv2 batchmatmulv3 bincount convolution
cross cumprod cumsum densebincount dot dot_general einsum gemm matmul mul multiply neg negate pow
power prod reduce reduce_window reducel1 reduceprod reducesum reducesumsquare scatter
scatterelements scatternd segmentprod segmentprodv2 segmentsum segmentsumv2 select_and_scatter
square squareddifference sum tensorscatteradd tensorscattersub unsortedsegmentprod
unsortedsegmentsum xlaeinsum"""
CHECKED = SUMS | CASTS | QUOTIENTS | ROOTS | SHIFTS | {*ARITHMETIC.split()}
STAYING = {"abs", "neg", "negate"} | QUOTIENTS | SUMS  # wrong for one number, or of positions
PLACES = """axis base_dilations dimensions indices lhs_dilation num_segments padding reversal
rhs_dilation segment_ids shape size strides window_dilations window_dimensions window_strides"""
KNOWN = {"Static", "Entries"}  # annotations of arguments that are read while tracing


def fit(exact: jax.Array, out: jax.Array | None, dtype: DTypeLike = np.int32) -> jax.Array:
    """Returns whether 32 bits hold numbers that are known in floats, beside the integers that were
    computed; JAX clips what it casts, of which there are none.
    """
    if out is None:
        low, high = (-(2.0**31), 2.0**31) if dtype == np.int32 else (-1.0 + 2**-24, 2.0**32)
        fits = (exact >= low) & (exact < high)
        return (fits | ~jnp.isfinite(exact)).all()  # torch gives any number for infinity
    exact = jnp.where(jnp.isnan(exact), 0, exact)  # infinity times 0
    return (jnp.abs(out.astype(REAL) - exact) < 2.0**31).all()


def overflow(operator: object, where: str = "") -> Unsupported:
    """Returns the error for 64-bit integers that 32 bits do not hold."""
    return Unsupported(
        f"{operator} gives 64-bit integers beyond 2**31",
        where=where,
        why="JAX keeps 32-bit integers unless x64 is on",
        do='call jax.config.update("jax_enable_x64", True) first',
    )


@functools.cache
def _trace_state() -> Callable[..., object]:
    """Looks it up where a program has integers: the module that has it loads Pallas."""
    return need("jax.extend.core:get_opaque_trace_state", "integers beyond 32 bits in loops")


class Checks(list[jax.Array]):
    """The conditions of one evaluation of a graph, on which its output depends."""

    def __init__(self) -> None:
        super().__init__()
        self.stepped = False  # whether a small number was added, which is not checked
        self.level = _trace_state()(convention="flax")

    def note(self, operator: str, lowering: Callable, arguments: list, out: Any) -> None:
        """Adds a condition where the 64-bit integers that an operator gave may not fit.

        Args:
          operator: its name in its framework.
          lowering: what computes it.
          arguments: what that was called with.
          out: what it gave.

        Raises:
          Unsupported: the values are known, and they do not fit.
        """
        name = operator.rpartition(".")[2].lower()
        narrow = getattr(out, "dtype", None) in (np.int32, np.uint32)
        if name not in CHECKED or x64() or not narrow:
            return
        arrays = [x for x in arguments if isinstance(x, (jax.Array, np.ndarray, np.generic))]
        if isinstance(out, jax.core.Tracer) and name in SUMS and any(map(_small, arguments)):
            self.stepped = True
            return
        if name in QUOTIENTS and (out.dtype == np.uint32 or _is_no_negation(arrays[1])):
            return
        if name in CASTS:
            (argument,) = arrays
            of_floats = is_float(argument.dtype)
            if not of_floats and (argument.dtype.itemsize < 4 or argument.dtype == out.dtype):
                return
            holds = fit(jnp.asarray(argument.astype(REAL)), None if of_floats else out, out.dtype)
        elif name in QUOTIENTS:
            holds = ~((arrays[0] == np.iinfo(np.int32).min) & (arrays[1] == -1)).any()
        else:
            exact = (_shifted if name in SHIFTS else lowering)(*_reals(name, lowering, arguments))
            holds = fit(exact, None if name in ROOTS else out, out.dtype)
        self.require(holds, lambda: overflow(operator), growing=name not in STAYING)

    def require(
        self, holds: jax.Array, error: Callable[[], Unsupported], growing: bool = False
    ) -> None:
        """Adds a condition; none of loops and branches, whose values exist in there alone: what is
        ``growing`` gives a warning there.

        Raises:
          Unsupported: the values are known, and it does not hold.
        """
        if not isinstance(holds, jax.core.Tracer):
            if not holds:
                raise error()
        elif self.level == _trace_state()(convention="flax"):
            self.append(holds)
        elif growing:
            name = error().what.partition(" ")[0]
            warn_once.warn(
                f"{name} of 64-bit integers inside a loop or branch is computed in 32 bits and not "
                'checked; jax.config.update("jax_enable_x64", True) keeps them',
                UncheckedValues,
            )


def _is_no_negation(divisor: jax.Array | np.ndarray | np.generic) -> bool:
    return not isinstance(divisor, jax.core.Tracer) and bool((np.asarray(divisor) != -1).all())


def _shifted(first: jax.Array, second: jax.Array, direction: str = "LEFT", /) -> jax.Array:
    return first * 2.0 ** (second if direction == "LEFT" else -second)


def _small(argument: object) -> bool:
    is_array = isinstance(argument, (np.ndarray, np.generic, jax.Array))
    if not is_array or isinstance(argument, jax.core.Tracer):
        return False
    return bool(np.abs(np.asarray(argument)).max(initial=0) <= STEP)


def _reals(name: str, lowering: Callable, arguments: Sequence[PyTree]) -> list[PyTree]:
    """Returns the arguments with floats in the place of integers that are no places."""
    function = inspect.unwrap(lowering)
    code, kinds = getattr(function, "__code__", None), getattr(function, "__annotations__", {})
    names = code.co_varnames[: code.co_argcount] if code else ()
    names = (*names, *[""] * (len(arguments) - len(names)))
    places = {*PLACES.split()} | {n for n in names if str(kinds.get(n)).strip("'\"") in KNOWN}
    places |= {"arr", "input"} if name.endswith("bincount") else set()
    return [x if n in places else _real(x) for n, x in zip(names, arguments)]


def _real(argument: PyTree) -> PyTree:
    if isinstance(argument, list):
        return [*map(_real, argument)]
    if isinstance(argument, (np.ndarray, np.generic)) and argument.dtype.kind in "iu":
        return argument.astype(REAL)
    is_integer = isinstance(argument, jax.Array) and argument.dtype in (np.int32, np.uint32)
    return argument.astype(REAL) if is_integer else argument
