"""A function's jaxpr in operators of ``jax.lax`` alone, which exporters know.

Nested calls, custom derivatives, choices between platforms and hints for a compiler are removed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax

from anyjax.export.rewrites import REWRITES
from anyjax.jaxprs import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    called,
    constants,
    is_program,
    jaxpr_as_fun,
    opened,
)

# Operators that return their arguments.
HINTS = {"kept_on_cpu", "rounded_on_cpu", "optimization_barrier", "copy", "copy_p", "name"}

# Operators of anyjax that JAX's operators implement.
OURS = {"reversible_while"}


def plain(function: Callable, *specs: Any) -> ClosedJaxpr:
    """Returns the jaxpr of a function for these specs, in operators of ``jax.lax`` alone.

    Example:
      >>> import jax.numpy as jnp
      >>> str(plain(jax.jit(jnp.sin), 1.0).eqns[0].primitive)
      'sin'
    """
    closed = jax.make_jaxpr(function)(*specs)
    return jax.make_jaxpr(lambda *xs: _evaluate(closed.jaxpr, closed.consts, xs))(*specs)


def primitives(program: ClosedJaxpr | Jaxpr) -> set[str]:
    """Returns the names of all operators, also inside of loops and branches."""
    names: set[str] = set()
    for eqn in opened(program).eqns:
        names.add(eqn.primitive.name)
        for inner in _inner(eqn.params):
            names |= primitives(inner)
    return names


def _inner(params: Mapping[str, object]) -> Iterator[ClosedJaxpr | Jaxpr]:
    for value in params.values():
        for x in value if isinstance(value, (tuple, list)) else (value,):
            if is_program(x):
                yield x


def _evaluate(jaxpr: Jaxpr, consts: Sequence[jax.Array], args: Sequence[jax.Array]) -> list[Any]:
    values: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args)))
    read = lambda v: v.val if isinstance(v, Literal) else values[v]
    for eqn in jaxpr.eqns:
        results = _evaluate_eqn(eqn, [read(v) for v in eqn.invars])
        values.update(zip(eqn.outvars, results))
    return [read(v) for v in jaxpr.outvars]


def _evaluate_eqn(eqn: JaxprEqn, inputs: list[Any]) -> Sequence[Any]:
    """Evaluates an equation, rewritten where exporters do not know it."""
    name = eqn.primitive.name
    if (inner := called(eqn)) is not None:
        return _evaluate(opened(inner), constants(inner), inputs)
    if name in HINTS:
        return inputs
    if name == "platform_index":  # that of the default branch
        return [list(eqn.params["platforms"]).index(None)]
    if name == "cond" and isinstance(inputs[0], int):
        branch = eqn.params["branches"][inputs[0]]
        return _evaluate(branch.jaxpr, branch.consts, inputs[1:])
    if name in OURS:
        closed = plain(functools.partial(eqn.primitive.impl, **eqn.params), *inputs)
        return _evaluate(closed.jaxpr, closed.consts, inputs)
    if name in REWRITES and (out := REWRITES[name](eqn, inputs)) is not None:
        return out
    params = {k: _rewritten(v) for k, v in eqn.params.items()}
    out = eqn.primitive.bind(*inputs, **params)
    return out if eqn.primitive.multiple_results else [out]


def _rewritten(value: object) -> Any:
    """Returns a parameter with its jaxprs in plain form."""
    if isinstance(value, (tuple, list)) and any(map(is_program, value)):
        return type(value)(map(_rewritten, value))
    return plain(jaxpr_as_fun(value), *value.in_avals) if isinstance(value, ClosedJaxpr) else value
