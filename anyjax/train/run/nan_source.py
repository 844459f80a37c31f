"""The first operation of a function that makes a NaN or an infinity."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from anyjax.jaxprs import Jaxpr, Literal, function_of
from anyjax.typing import PyTree

INLINED = {
    "checkpoint": "jaxpr",
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "jit": "jaxpr",
    "remat2": "jaxpr",
}
TRANSFORMED = re.compile(r"\w+\((.*)\)")  # jvp(layers.3)


def first_nonfinite(function: Callable, *args: Any) -> str:
    """Runs a function operation by operation, and names the first that makes NaN or infinity.

    If a result is NaN, infinities on the way don't count: masks are made of them.

    Returns:
      Text such as ``sqrt makes NaN in layers.3/norm``, empty if all results are finite.

    Example:
      >>> import jax.numpy as jnp
      >>> first_nonfinite(lambda x: jnp.sqrt(x - 1).sum(), jnp.zeros(2))
      'sqrt makes NaN'
      >>> first_nonfinite(lambda x: jnp.where(x > 0, -jnp.inf, x).max(), jnp.zeros(2))
      ''
    """
    closed, findings = jax.make_jaxpr(function)(*args), dict[str, str]()
    out = _evaluate(closed.jaxpr, closed.consts, jax.tree.leaves(args), "", findings)
    for kind, predicate in (("NaN", jnp.isnan), ("infinity", jnp.isinf)):
        if _any(predicate, out):
            return findings.get(kind, f"an operand is {kind}")
    return ""


def _evaluate(
    jaxpr: Jaxpr,
    consts: Sequence[object],
    args: Sequence[object],
    scope: str,
    findings: dict[str, str],
) -> list[Any]:
    """Returns the results, and adds to ``findings``. Values are dropped after their last use."""
    env = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args)))
    read = lambda v: v.val if isinstance(v, Literal) else env[v]
    used = [{v for v in eqn.invars if not isinstance(v, Literal)} for eqn in jaxpr.eqns]
    last_use = {v: i for i, names in enumerate(used) for v in names}
    last_use |= dict.fromkeys((v for v in jaxpr.outvars if not isinstance(v, Literal)), -1)
    for i, eqn in enumerate(jaxpr.eqns):
        operands = [read(v) for v in eqn.invars]
        name_stack = _nested(scope, str(eqn.source_info.name_stack))
        inner = eqn.params.get(INLINED.get(eqn.primitive.name, ""))
        if inner is not None:
            body = getattr(inner, "jaxpr", inner)
            results = _evaluate(body, getattr(inner, "consts", ()), operands, name_stack, findings)
        else:
            results = function_of([eqn], [*used[i]], eqn.outvars)(*map(env.__getitem__, used[i]))
            _record_nonfinite(eqn.primitive.name, operands, results, name_stack, findings)
        env.update(zip(eqn.outvars, results))
        for v in used[i]:
            if last_use[v] == i:
                del env[v]
    return [read(v) for v in jaxpr.outvars]


def _nested(scope: str, name_stack: str) -> str:
    """Returns the scope of an operation, without the transformations that it went through."""
    while match := TRANSFORMED.search(name_stack):
        name_stack = name_stack.replace(match[0], match[1])
    names = [x for x in name_stack.split("/") if x]
    inner = "/".join(names)
    return inner if inner.startswith(scope) else "/".join([scope, *names])


def _record_nonfinite(
    name: str,
    operands: Sequence[object],
    results: Sequence[object],
    name_stack: str,
    findings: dict[str, str],
) -> None:
    """Adds the operation to ``findings`` if it makes a NaN or an infinity of other operands."""
    where = f" in {name_stack}" if name_stack else ""
    if "NaN" not in findings and _any(jnp.isnan, results) and not _any(jnp.isnan, operands):
        findings["NaN"] = f"{name} makes NaN{where}"
    infinite = "infinity" not in findings and _any(jnp.isinf, results)
    if infinite and not _any(lambda x: ~jnp.isfinite(x), operands):
        findings["infinity"] = f"{name} makes infinity{where}"


def _any(predicate: Callable, arrays: Sequence[PyTree]) -> bool:
    floats = [x for x in arrays if jnp.issubdtype(jnp.result_type(x), jnp.inexact)]
    return any(bool(predicate(x).any()) for x in floats)
