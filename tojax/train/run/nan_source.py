"""A function run operation by operation, until one makes a NaN or an infinity."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tojax.jaxprs import ClosedJaxpr, Literal, jaxpr_as_fun

INLINED = {
    "checkpoint": "jaxpr",
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "jit": "jaxpr",
    "remat2": "jaxpr",
}
MODULE = re.compile(r"(?:the model|[\w.]+) \(\w+\)")


def first_bad(function: Callable, *args: Any) -> str:
    """``sqrt makes NaN in layers.3 (Norm)``: where a result that is not finite begins; nothing if
    all are finite.

    Where a result is NaN, infinities on the way are no finding: masks are made of them.

    Example:
      >>> import jax.numpy as jnp
      >>> first_bad(lambda x: jnp.sqrt(x - 1).sum(), jnp.zeros(2))
      'sqrt makes NaN'
      >>> first_bad(lambda x: jnp.where(x > 0, -jnp.inf, x).max(), jnp.zeros(2))
      ''
    """
    closed, found = jax.make_jaxpr(function)(*args), dict[str, str]()
    out = _run(closed.jaxpr, closed.consts, jax.tree.leaves(args), "", found)
    for what, bad in (("NaN", jnp.isnan), ("infinity", jnp.isinf)):
        if _any(bad, out):
            return found.get(what, f"an operand is {what}")
    return ""


def _run(jaxpr: Any, consts: Any, args: Any, scope: str, found: dict[str, str]) -> list[Any]:
    """The results; the first findings go to ``found``. What is not used any more is dropped."""
    known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args)))
    read = lambda v: v.val if isinstance(v, Literal) else known[v]
    used = [{v for v in eqn.invars if not isinstance(v, Literal)} for eqn in jaxpr.eqns]
    last = {v: i for i, names in enumerate(used) for v in names}
    last |= dict.fromkeys((v for v in jaxpr.outvars if not isinstance(v, Literal)), -1)
    for i, eqn in enumerate(jaxpr.eqns):
        operands = [read(v) for v in eqn.invars]
        here = f"{scope}/{eqn.source_info.name_stack}"
        inner = eqn.params.get(INLINED.get(eqn.primitive.name, ""))
        if inner is not None:
            body = getattr(inner, "jaxpr", inner)
            made = _run(body, getattr(inner, "consts", ()), operands, here, found)
        else:
            made = _one(jaxpr, eqn)(*map(known.__getitem__, used[i]))
            _look(eqn.primitive.name, operands, made, here, found)
        known.update(zip(eqn.outvars, made))
        for v in used[i]:
            if last[v] == i:
                del known[v]
    return [read(v) for v in jaxpr.outvars]


def _one(jaxpr: Any, eqn: Any) -> Callable:
    """One operation as a function of the variables among its operands."""
    names = {v for v in eqn.invars if not isinstance(v, Literal)}
    alone = jaxpr.replace(constvars=[], invars=[*names], outvars=eqn.outvars, eqns=[eqn])
    return jaxpr_as_fun(ClosedJaxpr(alone, ()))


def _look(name: str, operands: Any, made: Any, here: str, found: dict[str, str]) -> None:
    """Whether an operation made what its operands did not have."""
    modules = MODULE.findall(here)
    where = f" in {modules[-1]}" if modules else ""
    if "NaN" not in found and _any(jnp.isnan, made) and not _any(jnp.isnan, operands):
        found["NaN"] = f"{name} makes NaN{where}"
    infinite = "infinity" not in found and _any(jnp.isinf, made)
    if infinite and not _any(lambda x: ~jnp.isfinite(x), operands):
        found["infinity"] = f"{name} makes infinity{where}"


def _any(bad: Callable, arrays: Any) -> bool:
    floats = [x for x in arrays if jnp.issubdtype(jnp.result_type(x), jnp.inexact)]
    return any(bool(bad(x).any()) for x in floats)
