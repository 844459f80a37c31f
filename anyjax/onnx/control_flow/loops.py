"""``Loop``: a scan where its turns can be counted, a while loop where a value ends it, and one
graph after another where values change their shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.errors import DataDependent
from anyjax.onnx.control_flow.branches import arrays, is_traced
from anyjax.onnx.core.nodes import Graph, Node
from anyjax.onnx.core.running import Running, handles
from anyjax.stablehlo.control_flow.loops import while_loop
from anyjax.stablehlo.core.static_values import Value, as_jax, is_known
from anyjax.typing import PyTree

TRUE = np.asarray(True)


@dataclass
class Turn:
    """The body of a loop as a function; values that it returns unchanged are not carried."""

    run: Running
    node: Node
    body: Graph
    start: Sequence[Any]
    key: jax.Array | None

    @property
    def moving(self) -> list[int]:
        """The places of the values that change."""
        pairs = zip(self.body.inputs[2:], self.body.outputs[1:])
        return [i for i, (name, out) in enumerate(pairs) if name != out][: len(self.start)]

    def filled(self, carry: Sequence[PyTree]) -> list[Any]:
        values = list(self.start)
        for i, value in zip(self.moving, carry):
            values[i] = value
        return values

    def __call__(
        self, i: jax.Array | np.ndarray, carry: Sequence[PyTree]
    ) -> tuple[Any, list[Any], list[Any]]:
        """Returns (whether to go on, the values that change, the turn's rows of the outputs)."""
        key = None if self.key is None else jax.random.fold_in(self.key, i)
        go_on, *out = self.run.nested(self.body, [i, TRUE, *self.filled(carry)], key)
        count = len(self.start)
        return go_on, [out[k] for k in self.moving], out[count:]


@handles("Loop")
def loop(run, node, inputs):
    most, cond, *start = inputs
    turn = Turn(run, node, node.attributes["body"], start, run.branch_key(node))
    most = most.item() if most is not None and not is_traced(most) else most
    cond = TRUE if cond is None else cond
    if not is_traced(cond):
        most, cond = most if cond.item() else 0, TRUE
    is_counted = most is not None and not is_traced(most)
    carry = [start[i] for i in turn.moving]
    rows = len(turn.body.outputs) - 1 - len(start)
    if not any(isinstance(x, list) or x is None for x in carry):
        shapes = _probe(turn, carry)
        if shapes is not None and is_counted and is_known(shapes.go_on) and is_known(cond):
            return _scan(turn, int(most) if shapes.go_on.item() else min(1, most), carry)
        if shapes is not None and not rows:
            return _while(turn, most, cond, carry)
    return _unrolled(turn, most, cond, carry, rows)


@dataclass
class Shapes:
    """The result of tracing one turn: the condition, if it is known."""

    go_on: Any


def _probe(turn: Turn, carry: Sequence[PyTree]) -> Shapes | None:
    """Traces a turn; returns None if its shapes differ from turn to turn."""
    conditions: list[Any] = []

    def trace(i, carry):
        go_on, out, rows = turn(i, carry)
        conditions.append(go_on if is_known(go_on) else None)
        return arrays(out), arrays(rows)

    try:
        out, _ = jax.eval_shape(trace, np.int32(0), arrays(carry))
    except DataDependent:
        return None
    same = lambda a, b: (a.shape, a.dtype) == (np.shape(b), jnp.asarray(as_jax(b)).dtype)
    leaves = jax.tree.leaves(out), jax.tree.leaves(carry)
    same_shapes = len(leaves[0]) == len(leaves[1]) and all(map(same, *leaves))
    return Shapes(conditions[0]) if same_shapes else None


def _scan(turn: Turn, count: int, carry: Sequence[PyTree]) -> list[Any]:
    def step(carry, i):
        _, carry, rows = turn(i, carry)
        return arrays(carry), arrays(rows)

    last, rows = lax.scan(step, arrays(carry), jnp.arange(count, dtype=jnp.int32))
    return [*turn.filled(last), *rows]


def _while(turn: Turn, most: Value | None, cond: Value, carry: Sequence[PyTree]) -> list[Any]:
    def go_on(i, cond, *carry):
        return cond if most is None else jnp.logical_and(i < as_jax(most), cond)

    def step(i, cond, *carry):
        cond, values, _ = turn(i, carry)
        return [i + 1, *arrays([cond.reshape(())]), *arrays(values)]

    start = [np.int32(0), cond if is_known(cond) else cond.reshape(()), *arrays(list(carry))]
    _, _, *carry = while_loop(go_on, step, start)
    return turn.filled(carry)


def _unrolled(
    turn: Turn, most: int | None, cond: Value, carry: Sequence[PyTree], count: int
) -> list[Any]:
    """Evaluates one turn after another, with the numbers of the turns known."""
    rows: list[list[Any]] = [[] for _ in range(count)]
    i = 0
    while True:
        for value in (most, cond):
            if is_traced(value):
                raise _uncounted(turn, value)
        if not cond.item() or (most is not None and i >= most):
            break
        cond, carry, new_rows = turn(np.asarray(i), carry)
        for row, value in zip(rows, new_rows):
            row.append(value)
        i += 1
    if not i and count:
        return [*turn.filled(carry), *_scan(turn, 0, carry)[-count:]]
    return [*turn.filled(carry), *(jnp.stack([as_jax(x) for x in row]) for row in rows)]


def _uncounted(turn: Turn, value: object) -> DataDependent:
    error = DataDependent(
        "the turns of a Loop decide the shape of its outputs, and are computed from its inputs",
        where=turn.node.place(),
        why="JAX compiles a program for fixed shapes",
        do="pass what decides it as a numpy array that no transformation traces, or call "
        "model.apply outside of jit",
    )
    error.value = value
    return error
