"""64-bit integers of a program, which JAX computes in 32 bits while x64 is off: what may need more
is computed in floats beside. A number that wrapped is off by 2**32, which no rounding is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from anyjax.dtypes import is_float, x64
from anyjax.errors import Unsupported
from anyjax.private_names import need

STEP = 1 << 24  # a sum with a number below, such as the next position, is not checked
REAL = jnp.float32
SUMS = {"add", "addv2", "sub", "subtract"}
CASTS = {"cast", "convert"}
ARITHMETIC = """abs addn batchmatmul batchmatmulv2 batchmatmulv3 cumprod cumsum dot dot_general
einsum gemm matmul mul multiply neg negate pow power prod reduceprod reducesum reducesumsquare
segmentsum segmentsumv2 square sum unsortedsegmentprod unsortedsegmentsum"""
CHECKED = SUMS | CASTS | {*ARITHMETIC.split()}


def fit(exact: jax.Array, out: jax.Array | None) -> jax.Array:
    """Returns whether 32 bits hold numbers that are known in floats, beside the integers that were
    computed; JAX clips what it casts, of which there are none.
    """
    if out is None:
        fits = (exact >= -(2.0**31)) & (exact < 2.0**31)
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
        if name not in CHECKED or x64() or getattr(out, "dtype", None) != np.int32:
            return
        is_traced = isinstance(out, jax.core.Tracer)
        if is_traced and name in SUMS and any(map(_small, arguments)):
            return
        if name in CASTS:
            if not is_float(arguments[0].dtype):
                return
            holds = fit(arguments[0].astype(REAL), None)
        else:
            holds = fit(lowering(*map(_real, arguments)), out)
        if not isinstance(holds, jax.core.Tracer):
            if not holds:
                raise overflow(operator)
        elif self.level == _trace_state()(convention="flax"):
            self.append(holds)  # none of loops and branches, whose values exist in there alone


def _small(argument: object) -> bool:
    is_array = isinstance(argument, (np.ndarray, np.generic, jax.Array))
    if not is_array or isinstance(argument, jax.core.Tracer):
        return False
    return bool(np.abs(np.asarray(argument)).max(initial=0) <= STEP)


def _real(argument: Any) -> Any:
    if isinstance(argument, list):
        return [*map(_real, argument)]
    is_integer = isinstance(argument, jax.Array) and argument.dtype == np.int32
    return argument.astype(REAL) if is_integer else argument
