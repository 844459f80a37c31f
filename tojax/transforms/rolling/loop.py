"""A program run with its repeats as loops: ``lax.scan`` over operands stacked by round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tojax.jaxprs import ClosedJaxpr, DebugInfo, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun
from tojax.transforms.rolling.repeats import Repeat


@dataclass(frozen=True)
class Row:
    """One row of a stacked array, not cut out yet."""

    stack: Any
    row: int


class Values:
    """What is known of a run: arrays by variable, some of them rows of a stacked one."""

    def __init__(self, given: Mapping[Any, Any]):
        self.known = dict(given)

    def __getitem__(self, v: Any) -> Any:
        if isinstance(v, Literal):
            return v.val
        if isinstance(held := self.known[v], Row):
            held = self.known[v] = held.stack[held.row]
        return held

    def stacked(self, operands: Sequence[Any]) -> Any:
        """[rounds, ...]; the stack itself where they are all its rows in order."""
        if isinstance(operands[0], Literal):
            return jnp.asarray(np.stack([np.asarray(v.val) for v in operands]))
        rows = [self.known[v] for v in operands]
        stack = getattr(rows[0], "stack", None)
        if stack is not None and all(isinstance(x, Row) and x.stack is stack for x in rows):
            places = [x.row for x in rows]
            if places == [*range(places[0], places[0] + len(places))]:
                whole = len(places) == stack.shape[0]
                return stack if whole else lax.slice_in_dim(stack, places[0], places[-1] + 1)
        return jnp.stack([self[v] for v in operands])


def run(
    eqns: Sequence[JaxprEqn],
    loops: Sequence[Repeat],
    uses: Mapping[Any, int],
    outvars: Sequence[Any],
    given: Mapping[Any, Any],
    remat: bool = False,
) -> list[Any]:
    """The values of ``outvars``.

    Args:
      eqns: the program.
      loops: its repeats, in order.
      uses: the last equation that uses a variable.
      given: values of constants and inputs, arrays or ``Row``.
      remat: whether what a round computes is computed again for the gradient.
    """
    values, done = Values(given), 0
    for loop in loops:
        _straight(eqns[done : loop.start], uses, loop.start, values)
        _loop(eqns, loop, uses, values, remat)
        done = loop.end
    _straight(eqns[done:], uses, len(eqns), values)
    return [values[v] for v in outvars]


def _straight(eqns: Sequence[JaxprEqn], uses: Mapping[Any, int], end: int, values: Values) -> None:
    """Equations one by one; what is used after ``end`` is kept."""
    if not eqns:
        return
    made = {v for eqn in eqns for v in eqn.outvars}
    taken = dict.fromkeys(
        v for eqn in eqns for v in eqn.invars if isinstance(v, Var) and v not in made
    )
    left = [v for eqn in eqns for v in eqn.outvars if uses.get(v, -1) >= end]
    out = _function(eqns, [*taken], left)(*(values[v] for v in taken))
    values.known |= dict(zip(left, out))


def _function(eqns: Sequence[JaxprEqn], invars: list[Any], outvars: list[Any]) -> Callable:
    """Equations as a function of these variables."""
    effects = frozenset().union(*(eqn.effects for eqn in eqns))
    names = tuple(f"x{i}" for i in range(len(invars))), tuple(f"[{i}]" for i in range(len(outvars)))
    jaxpr = Jaxpr((), invars, outvars, [*eqns], effects, DebugInfo("roll", "layers", *names))
    return jaxpr_as_fun(ClosedJaxpr(jaxpr, ()))


def _loop(
    eqns: Sequence[JaxprEqn], loop: Repeat, uses: Mapping[Any, int], values: Values, remat: bool
) -> None:
    body = [*eqns[loop.start : loop.start + loop.period]]
    result = lambda place, turn=0: eqns[loop.start + turn * loop.period + place[0]].outvars[
        place[1]
    ]
    new: dict[tuple[str, int], Var] = {}  # operands that the first round takes as variables
    for i, sources in enumerate(loop.operands):
        taken = []
        for v, (kind, number) in zip(body[i].invars, sources):
            bound = kind == "inside" or (kind == "shared" and isinstance(v, Literal))
            taken.append(v if bound else new.setdefault((kind, number), Var(v.aval)))
        body[i] = body[i].replace(invars=taken)
    used = [i for i, v in enumerate(loop.shared) if not isinstance(v, Literal)]
    kinds = ("shared", used), ("carry", range(len(loop.carries))), ("own", range(len(loop.own)))
    invars = [new[name, i] for name, numbers in kinds for i in numbers]
    ended = {place: i for i, (place, _) in enumerate(loop.carries)}
    rounds = range(loop.rounds)
    asked = {p: [r for r in rounds if uses.get(result(p, r), -1) >= loop.end] for p in loop.wanted}
    every = [p for p, turns in asked.items() if p not in ended or turns != [loop.rounds - 1]]
    function = _function(body, invars, [result(p) for p in (*(p for p, _ in loop.carries), *every)])
    shared = [values[loop.shared[i]] for i in used]
    count = len(loop.carries)

    def step(carry: list[Any], own: list[Any]) -> tuple[list[Any], list[Any]]:
        out = function(*shared, *carry, *own)
        return out[:count], out[count:]

    start = [jnp.asarray(values[v]) for _, v in loop.carries]
    own = [values.stacked(operands) for operands in loop.own]
    last, all_rounds = lax.scan(jax.checkpoint(step) if remat else step, start, own, loop.rounds)
    for place, turns in asked.items():
        if place in every:
            stack = all_rounds[every.index(place)]
            values.known |= {result(place, r): Row(stack, r) for r in turns}
        else:
            values.known[result(place, loop.rounds - 1)] = last[ended[place]]
