"""Evaluation of a program with its repeats as loops: ``lax.scan`` over operands by round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.jaxprs import JaxprEqn, Literal, Var, function_of, variables
from anyjax.transforms.rolling.repeats import SMALL, Place, Repeat


@dataclass(frozen=True)
class Row:
    """A row of a stacked array, sliced when it is needed."""

    stack: Any
    row: int


class Values:
    """The values of variables: arrays, or rows of a stacked array."""

    def __init__(self, values: Mapping[Var, jax.Array | Row]):
        self.by_variable = dict(values)

    def __getitem__(self, v: Var | Literal) -> Any:
        if isinstance(v, Literal):
            return v.val
        if isinstance(value := self.by_variable[v], Row):
            value = self.by_variable[v] = value.stack[value.row]
        return value

    def stacked(self, operands: Sequence[Var | Literal]) -> Any:
        """Stacks operands to [rounds, ...]; rows of a stack in order give a slice of it."""
        literals = [np.asarray(v.val) for v in operands if isinstance(v, Literal)]
        if literals:
            return jnp.asarray(np.stack(literals))
        rows = [self.by_variable[v] for v in operands if not isinstance(v, Literal)]
        stack: Any = getattr(rows[0], "stack", None)
        places = [x.row for x in rows if isinstance(x, Row) and x.stack is stack]
        if places and places == [*range(places[0], places[0] + len(rows))]:
            if len(places) == stack.shape[0]:
                return stack
            return lax.slice_in_dim(stack, places[0], places[-1] + 1)
        arrays = [self[v] for v in operands]
        if all(map(_is_constant, arrays)):  # one constant, and not an operand for each round
            return jnp.asarray(np.stack(arrays))
        return jnp.stack(arrays)


def _is_constant(x: jax.Array | np.ndarray) -> bool:
    is_array = isinstance(x, (np.ndarray, jax.Array)) and not isinstance(x, jax.core.Tracer)
    return is_array and x.size <= SMALL and not jnp.issubdtype(x.dtype, jax.dtypes.extended)


def evaluate(
    eqns: Sequence[JaxprEqn],
    loops: Sequence[Repeat],
    last_use: Mapping[Var, int],
    outvars: Sequence[Var | Literal],
    inputs: Mapping[Var, jax.Array | Row],
    remat: bool = False,
    on_round: Callable[[], None] | None = None,
) -> list[Any]:
    """Returns the values of ``outvars``.

    Args:
      eqns: the program.
      loops: its repeats, in order.
      last_use: by variable, the last equation that uses it.
      inputs: values of constants and inputs, arrays or ``Row``.
      remat: whether the results inside of a round are recomputed for the gradient.
      on_round: is called on the host at each round, while the program runs.
    """
    values, position = Values(inputs), 0
    for loop in loops:
        _evaluate_straight(eqns[position : loop.start], last_use, loop.start, values)
        _evaluate_loop(eqns, loop, last_use, values, remat, on_round)
        position = loop.end
    _evaluate_straight(eqns[position:], last_use, len(eqns), values)
    return [values[v] for v in outvars]


def _evaluate_straight(
    eqns: Sequence[JaxprEqn], last_use: Mapping[Var, int], end: int, values: Values
) -> None:
    """Evaluates equations without a loop; adds the results that are used after ``end``."""
    if not eqns:
        return
    results = {v for eqn in eqns for v in eqn.outvars}
    invars = {v: None for v in variables([v for x in eqns for v in x.invars]) if v not in results}
    outvars = [v for eqn in eqns for v in eqn.outvars if last_use.get(v, -1) >= end]
    out = function_of(eqns, [*invars], outvars)(*(values[v] for v in invars))
    values.by_variable |= dict(zip(outvars, out))


def _body(
    eqns: Sequence[JaxprEqn], loop: Repeat
) -> tuple[list[JaxprEqn], dict[tuple[str, int], Var]]:
    """Returns (the equations of a round, its variables for operands from outside of the round)."""
    body = [*eqns[loop.start : loop.start + loop.period]]
    new = {("carry", i): Var(v.aval) for i, (_, v) in enumerate(loop.carries)}
    for i, sources in enumerate(loop.operands):
        operands = []
        for v, (kind, number) in zip(body[i].invars, sources):
            bound = kind == "inside" or (kind == "shared" and isinstance(v, Literal))
            operands.append(v if bound else new.setdefault((kind, number), Var(v.aval)))
        body[i] = body[i].replace(invars=operands)
    return body, new


def _evaluate_loop(
    eqns: Sequence[JaxprEqn],
    loop: Repeat,
    last_use: Mapping[Var, int],
    values: Values,
    remat: bool,
    on_round: Callable[[], None] | None,
) -> None:
    """Evaluates a repeat as a scan; adds the results that are used after it."""

    def result(place: Place, number: int = 0) -> Var:
        return eqns[loop.start + number * loop.period + place[0]].outvars[place[1]]

    body, new = _body(eqns, loop)
    shared = [i for i, v in enumerate(loop.shared) if not isinstance(v, Literal)]
    carries, varying = range(len(loop.carries)), range(len(loop.varying))
    kinds = ("shared", shared), ("carry", carries), ("varying", varying)
    invars = [new[name, i] for name, numbers in kinds for i in numbers]
    carry_index = {x: i for i, (x, _) in enumerate(loop.carries) if not isinstance(x, int)}
    used_rounds = {
        place: [r for r in range(loop.rounds) if last_use.get(result(place, r), -1) >= loop.end]
        for place in loop.results
    }
    # results of which more is used than the last value of a carry
    stacked = [
        place
        for place, rounds in used_rounds.items()
        if place not in carry_index or rounds != [loop.rounds - 1]
    ]
    carried = [new["carry", x] if isinstance(x, int) else result(x) for x, _ in loop.carries]
    outvars = [*carried, *map(result, stacked)]
    function = function_of(body, invars, outvars)
    shared_values = [values[loop.shared[i]] for i in shared]
    count = len(loop.carries)

    def step(carry: list[jax.Array], xs: list[jax.Array]) -> tuple[list[Any], list[Any]]:
        out = function(*shared_values, *carry, *xs)
        if on_round is not None:
            jax.debug.callback(on_round)
        return out[:count], out[count:]

    init = [jnp.asarray(values[v]) for _, v in loop.carries]
    xs = [values.stacked(operands) for operands in loop.varying]
    last, stacks = lax.scan(jax.checkpoint(step) if remat else step, init, xs, loop.rounds)
    for place, rounds in used_rounds.items():
        if place in stacked:
            stack = stacks[stacked.index(place)]
            values.by_variable |= {result(place, r): Row(stack, r) for r in rounds}
        else:
            values.by_variable[result(place, loop.rounds - 1)] = last[carry_index[place]]
