"""A function's jaxpr without what only says how and where it is computed.

Exporters know the operators of ``jax.lax``. Calls inside of calls, derivatives of one's own,
choices between platforms and hints for one compiler are nothing that they could write.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax

from tojax.export.rewrites import REWRITES
from tojax.jaxprs import (
    ClosedJaxpr,
    Jaxpr,
    Literal,
    called,
    constants,
    is_program,
    jaxpr_as_fun,
    opened,
)

# What hands its arguments on, as they are.
HINTS = {"kept_on_cpu", "rounded_on_cpu", "optimization_barrier", "copy", "copy_p", "name"}

# Operators of tojax that are others of JAX together.
OURS = {"reversible_while"}


def plain(function: Any, *specs: Any) -> ClosedJaxpr:
    """The jaxpr of a function for these specs, in operators of ``jax.lax`` alone.

    Example:
      >>> import jax.numpy as jnp
      >>> str(plain(jax.jit(jnp.sin), 1.0).eqns[0].primitive)
      'sin'
    """
    closed = jax.make_jaxpr(function)(*specs)
    return jax.make_jaxpr(lambda *xs: _evaluate(closed.jaxpr, closed.consts, xs))(*specs)


def primitives(closed: ClosedJaxpr) -> set[str]:
    """Names of all operators, those inside of loops and branches, too."""
    found: set[str] = set()
    for eqn in closed.jaxpr.eqns:
        found.add(eqn.primitive.name)
        for inner in _inner(eqn.params):
            found |= primitives(inner)
    return found


def _inner(params: dict[str, Any]) -> Iterator[ClosedJaxpr]:
    for value in params.values():
        for x in value if isinstance(value, (tuple, list)) else (value,):
            if is_program(x):
                yield x


def _evaluate(jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    values: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args)))
    read = lambda v: v.val if isinstance(v, Literal) else values[v]
    for eqn in jaxpr.eqns:
        out = _one(eqn, [read(v) for v in eqn.invars])
        values.update(zip(eqn.outvars, out))
    return [read(v) for v in jaxpr.outvars]


def _one(eqn: Any, inputs: list[Any]) -> Sequence[Any]:
    name = eqn.primitive.name
    if (inner := called(eqn)) is not None:
        return _evaluate(opened(inner), constants(inner), inputs)
    if name in HINTS:
        return inputs
    if name == "platform_index":  # of the branch that is for no platform in particular
        return [list(eqn.params["platforms"]).index(None)]
    if name == "cond" and isinstance(inputs[0], int):
        branch = eqn.params["branches"][inputs[0]]
        return _evaluate(branch.jaxpr, branch.consts, inputs[1:])
    if name in OURS:
        made = plain(functools.partial(eqn.primitive.impl, **eqn.params), *inputs)
        return _evaluate(made.jaxpr, made.consts, inputs)
    if name in REWRITES and (out := REWRITES[name](eqn, inputs)) is not None:
        return out
    params = {k: _rewritten(v) for k, v in eqn.params.items()}
    out = eqn.primitive.bind(*inputs, **params)
    return out if eqn.primitive.multiple_results else [out]


def _rewritten(value: Any) -> Any:
    """A parameter whose jaxprs are plain."""
    if isinstance(value, (tuple, list)) and any(map(is_program, value)):
        return type(value)(map(_rewritten, value))
    return plain(jaxpr_as_fun(value), *value.in_avals) if isinstance(value, ClosedJaxpr) else value
