"""Loops with a known number of turns, which JAX can differentiate in reverse.

Source of the idea: ``lax.fori_loop`` with known bounds is a scan. Here the bound is read from the
jaxpr of the condition, and the step from that of the body.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax import reversible
from anyjax.jaxprs import ClosedJaxpr, Literal, jaxpr_as_fun
from anyjax.stablehlo.core.static_values import Value, as_jax, is_known


def while_loop(cond: Callable, body: Callable, init: Sequence[Value]) -> list[Any]:
    """Runs ``body`` as long as ``cond``; known initial values are numpy arrays.

    Where the condition compares a counter that the body moves by a constant with a known number,
    the loop is a scan, which has a reverse derivative.
    """
    start = [as_jax(x) for x in init]
    test = jax.make_jaxpr(cond)(*start)
    step = jax.make_jaxpr(body)(*start)
    run = jaxpr_as_fun(step)
    count = trips(test, step, init)
    if count is None:
        check = jaxpr_as_fun(test)
        return reversible.while_loop(lambda *c: check(*c)[0], run, [jnp.asarray(x) for x in start])
    return list(lax.fori_loop(0, count, lambda _, c: tuple(run(*c)), tuple(start)))


def trips(test: ClosedJaxpr, step: ClosedJaxpr, init: Sequence[Value]) -> int | None:
    """Returns the number of turns, None if jaxprs and known initial values do not tell it."""
    counts, all_known = _counts(test, step, init)
    return min(counts) if all_known else None


def bound(test: ClosedJaxpr, step: ClosedJaxpr, init: Sequence[Value]) -> int | None:
    """Returns an upper bound of the number of turns, None if there is none."""
    return min(_counts(test, step, init)[0], default=None)


def _counts(test: ClosedJaxpr, step: ClosedJaxpr, init: Sequence[Value]) -> tuple[list[int], bool]:
    """Returns the known turns of the conditions, and whether all conditions are known."""
    equations = {v: e for e in test.jaxpr.eqns for v in e.outvars}
    consts = dict(zip(test.jaxpr.constvars, test.consts))
    counts: list[int | None] = []
    pending = [test.jaxpr.outvars[0]]
    while pending:
        at = pending.pop()
        eqn = None if isinstance(at, Literal) else equations.get(at)
        if eqn is not None and eqn.primitive.name in ("and", *SAME):
            pending += eqn.invars
        else:
            counts.append(None if eqn is None else _trips(eqn, test, step, init, consts))
    known_counts = [x for x in counts if x is not None]
    return known_counts, len(known_counts) == len(counts)


SAME = ("reshape", "squeeze", "copy")  # of a scalar
FLIPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "ne": "ne"}


def _trips(eqn, test, step, init, consts) -> int | None:
    """Counts the turns for which a comparison of a counter and a known number holds."""
    name = eqn.primitive.name
    counter, limit = eqn.invars if len(eqn.invars) == 2 else (None, None)
    if name not in FLIPPED:
        return None
    if counter not in test.jaxpr.invars:
        counter, limit, name = limit, counter, FLIPPED[name]
    bound = limit.val if isinstance(limit, Literal) else consts.get(limit)
    if counter not in test.jaxpr.invars or bound is None or isinstance(bound, jax.core.Tracer):
        return None
    place = test.jaxpr.invars.index(counter)
    move = _move(step, place)
    first = init[place]
    if move is None or not is_known(first) or np.ndim(bound) or first.dtype.kind not in "iu":
        return None
    return _count(name, int(first), int(bound), move)


def _move(step: ClosedJaxpr, place: int) -> int | None:
    """Returns the constant that the body adds to a carried number, None if there is none."""
    counter, out = step.jaxpr.invars[place], step.jaxpr.outvars[place]
    consts = dict(zip(step.jaxpr.constvars, step.consts))
    eqn = next((e for e in step.jaxpr.eqns if out in e.outvars), None)
    if eqn is None or eqn.primitive.name not in ("add", "sub"):
        return None
    old, step_size = eqn.invars
    if step_size is counter and eqn.primitive.name == "add":
        old, step_size = step_size, old
    amount = step_size.val if isinstance(step_size, Literal) else consts.get(step_size)
    if old is not counter or amount is None or isinstance(amount, jax.core.Tracer):
        return None
    return int(amount) if eqn.primitive.name == "add" else -int(amount)


def _count(name: str, first: int, bound: int, move: int) -> int | None:
    """Counts the steps from ``first`` until the comparison fails; None if it never does."""
    if name in ("le", "ge"):
        bound, name = (bound + 1, "lt") if name == "le" else (bound - 1, "gt")
    if name == "ne":
        name = "lt" if move > 0 else "gt"
        if move == 0 or (bound - first) % move or (bound - first) * move < 0:
            return None
    ahead = bound - first if name == "lt" else first - bound
    pace = move if name == "lt" else -move
    if ahead <= 0:
        return 0
    return math.ceil(ahead / pace) if pace > 0 else None
