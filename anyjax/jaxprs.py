"""JAX's programs as values: every name of ``jax.extend.core`` that anyjax uses, looked up here,
and what compiles them.

Up to JAX 0.11 a ``ClosedJaxpr`` is a ``Jaxpr`` beside its constants. From 0.12 on they are one
class that may have constants. ``opened`` and ``constants`` read either.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import jax
import numpy as np

from anyjax.errors import UntestedVersion
from anyjax.numerics.attention.primitive import FORMULAS, formula_of
from anyjax.private_names import need
from anyjax.warn_once import warn

_PROGRAMS = "functions that are read as programs (roll, parallel, train, export, loops)"
_PRIMITIVES = "operators of its own"

if TYPE_CHECKING:
    from jax.extend.core import (
        ClosedJaxpr,
        DebugInfo,
        Jaxpr,
        JaxprEqn,
        Literal,
        Primitive,
        Var,
        get_opaque_trace_state,
        jaxpr_as_fun,
        jaxprs_in_params,
    )
    from jax.extend.linear_util import WrappedFun
else:
    ClosedJaxpr = need("jax.extend.core:ClosedJaxpr", _PROGRAMS)
    DebugInfo = need("jax.extend.core:DebugInfo", _PROGRAMS)
    Jaxpr = need("jax.extend.core:Jaxpr", _PROGRAMS)
    JaxprEqn = need("jax.extend.core:JaxprEqn", _PROGRAMS)
    Literal = need("jax.extend.core:Literal", _PROGRAMS)
    Primitive = need("jax.extend.core:Primitive", _PRIMITIVES)
    Var = need("jax.extend.core:Var", _PROGRAMS)
    WrappedFun = need("jax.extend.linear_util:WrappedFun", _PROGRAMS)
    get_opaque_trace_state = need("jax.extend.core:get_opaque_trace_state", "masks of one trace")
    jaxpr_as_fun = need("jax.extend.core:jaxpr_as_fun", _PROGRAMS)
    jaxprs_in_params = need("jax.extend.core:jaxprs_in_params", _PROGRAMS)

__all__ = [
    "ClosedJaxpr",
    "DebugInfo",
    "Jaxpr",
    "JaxprEqn",
    "Literal",
    "Primitive",
    "Var",
    "WrappedFun",
    "called",
    "compiler_option",
    "constants",
    "function_of",
    "get_opaque_trace_state",
    "is_program",
    "jaxpr_as_fun",
    "jaxprs_in_params",
    "keeping_barriers",
    "needed",
    "opened",
    "scan_counts",
    "variables",
]

# Operators that call one program, and the parameter that it is.
CALLS = {
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "checkpoint": "jaxpr",
    "remat2": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_lin": "call_jaxpr",
}


def called(eqn: JaxprEqn, formulas: bool = True) -> Jaxpr | ClosedJaxpr | None:
    """Returns the program that an equation calls, None if it computes something itself. An
    operator that has kernels calls its formula, unless ``formulas`` is False.

    Example:
      >>> import jax
      >>> (eqn,) = jax.make_jaxpr(jax.jit(jax.numpy.sin))(1.0).eqns
      >>> [inner.primitive.name for inner in opened(called(eqn)).eqns]
      ['sin']
    """
    if eqn.primitive in FORMULAS:
        if not formulas:
            return None
        return formula_of(eqn.primitive, tuple(x.aval for x in eqn.invars), eqn.params)
    return eqn.params.get(CALLS.get(eqn.primitive.name, ""))


def is_program(value: object) -> TypeGuard[Jaxpr | ClosedJaxpr]:
    """Returns whether a value is a jaxpr, closed or open."""
    return isinstance(value, (Jaxpr, ClosedJaxpr))


def opened(program: Any) -> Jaxpr:
    """Returns the jaxpr itself, without its constants where those are kept beside it."""
    return program.jaxpr if hasattr(program, "jaxpr") else program


def constants(program: object) -> Sequence[Any]:
    """Returns the values of ``opened(program).constvars`` that are known to the program."""
    return getattr(program, "consts", ())


def function_of(
    eqns: Sequence[JaxprEqn], invars: Sequence[Var], outvars: Sequence[Var]
) -> Callable[..., list[Any]]:
    """Returns equations as a function of these variables."""
    effects = frozenset[Any]().union(*(eqn.effects for eqn in eqns))
    debug = DebugInfo("equations", "program", None, None)
    return jaxpr_as_fun(ClosedJaxpr(Jaxpr((), [*invars], [*outvars], [*eqns], effects, debug), ()))


def needed(eqns: Sequence[JaxprEqn], outvars: Sequence[Var | Literal]) -> list[JaxprEqn]:
    """Returns the equations that results and effects need."""
    live, backwards = {*variables(outvars)}, []
    for eqn in reversed(eqns):
        if eqn.effects or not live.isdisjoint(eqn.outvars):
            backwards.append(eqn)
            live.update(variables(eqn.invars))
    return backwards[::-1]


def variables(operands: Sequence[Var | Literal]) -> list[Var]:
    """Returns the operands that are no literals."""
    return [v for v in operands if isinstance(v, Var)]


def scan_counts(eqn: JaxprEqn) -> tuple[int, int]:
    """Returns how many operands of a ``scan`` are constants, and how many are carried.

    JAX 0.12 has no parameters for it any more, but what is scanned over has one axis less inside.

    Example:
      >>> import jax
      >>> step = lambda carry, x: (carry + x, carry)
      >>> loop = jax.make_jaxpr(lambda x: jax.lax.scan(step, 0.0, x))(jax.numpy.ones(3))
      >>> scan_counts(loop.eqns[-1])
      (0, 1)
    """
    body = opened(eqn.params["jaxpr"])
    count = lambda outside, inside: sum(
        len(a.aval.shape) == len(b.aval.shape) for a, b in zip(outside, inside, strict=True)
    )
    carried = count(eqn.outvars, body.outvars)
    return count(eqn.invars, body.invars) - carried, carried


@functools.cache
def compiler_option(name: str, value: str) -> dict[str, str]:
    """Returns an option for ``compiler_options=`` of ``jax.jit``; nothing, with a warning, if the
    installed XLA does not have it.

    Example:
      >>> compiler_option("xla_disable_hlo_passes", "dce")
      {'xla_disable_hlo_passes': 'dce'}
    """
    option: dict[str, str | bool] = {name: value}
    try:
        jax.jit(lambda: 0).lower().compile(compiler_options=option)
    except jax.errors.JaxRuntimeError as error:
        if "No such compile option" not in str(error):
            raise
        problem = f"XLA of JAX {jax.__version__} has no option {name} to set to {value}"
        warn(problem, UntestedVersion)
        return {}
    return {name: value}


def keeping_barriers() -> dict[str, str]:
    """Returns the options with which XLA keeps the barriers of ``jax.checkpoint`` on CPUs.

    It drops them before it merges equal computations, those that should be done again with those
    that were done: the memory was the same as without.
    """
    return compiler_option("xla_disable_hlo_passes", "cse_barrier_expander")


def same_values(one: jax.Array, other: jax.Array, steps: int = 64) -> bool:
    """Returns whether two arrays of a program are computed alike, in at most so many steps.

    Example:
      >>> jax.jit(lambda x: same_values(x * 2, x * 2) + 0)(1.0).item()
      1
    """
    pending: list[tuple[Any, Any]] = [(one, other)]
    while pending and steps > 0:
        steps -= 1
        x, y = (_primal(v) for v in pending.pop())
        if x is y:
            continue
        x_from, y_from = getattr(x, "parent", None), getattr(y, "parent", None)
        if x_from is None or y_from is None:
            if _constant(x) is None or _constant(x) != _constant(y):
                return False
            continue
        places = [e.outvars.index(v.val) for e, v in ((x_from, x), (y_from, y))]
        alike = x_from.primitive is y_from.primitive and places[0] == places[1]
        if not alike or x_from.effects or not _equal(x_from.params, y_from.params):
            return False
        pending += zip(x_from.in_tracers, y_from.in_tracers)
    return not pending


def _primal(array: jax.Array) -> Any:
    """Returns what is computed of an array that is differentiated."""
    while hasattr(array, "primal"):
        array = array.primal
    return array


def _constant(tracer: jax.core.Tracer) -> tuple | None:
    """Returns a number that stands in a program."""
    literal = getattr(tracer, "val", None)
    if not isinstance(literal, Literal) or np.ndim(literal.val):
        return None
    return tracer.aval, complex(literal.val)


def _equal(one: dict, other: dict) -> bool:
    try:
        return bool(one == other)
    except (TypeError, ValueError):  # arrays among them
        return False
