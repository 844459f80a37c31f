"""One evaluation of a graph: every node by a handler, a known value, its row, or TensorFlow's
bridge to XLA.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax

from tojax import trees
from tojax.errors import MissingRng
from tojax.stablehlo.core.static_values import as_jax, is_known, known
from tojax.tensorflow.control_flow.custom_gradient import with_gradient
from tojax.tensorflow.core.nodes import Graph, Node
from tojax.tensorflow.core.private import op_def_of
from tojax.tensorflow.core.running import HANDLERS, OF_STRUCTURES
from tojax.tensorflow.core.schema import Entries, Known, Static, modes, table
from tojax.tensorflow.engine import bridge, diagnostics, tables  # noqa: F401
from tojax.tensorflow.engine.folding import fold
from tojax.tensorflow.engine.graph import Library
from tojax.tensorflow.engine.origins import NONE, Origin, Origins


class Run:
    """The values of variables as they change, the keys that are left, the functions to call."""

    def __init__(self, library: Library, variables: dict[Any, Any], rng: jax.Array | None):
        self.library, self.variables, self.rng = library, variables, rng
        self.before = dict(variables)  # their values before the model assigned any
        self.written: set[Any] = set()
        self.drawn = 0
        self.packed: dict[int, tuple] = {}  # id of a vector -> itself and its entries
        self.least: dict[int, tuple] = {}  # id of a size -> itself and what it is at least
        self.stack: list[str] = []
        self.origins = Origins()

    def graph(
        self, graph: Graph, inputs: Sequence[Any], origins: Sequence[Origin] | None = None
    ) -> tuple:
        """The outputs for these inputs; ``origins`` are the arguments that they come from."""
        values: dict[str, tuple] = {name: (x,) for name, x in zip(graph.inputs, inputs)}
        origins = origins or [NONE] * len(inputs)
        known = {name: [o] for name, o in zip(graph.inputs, origins)}
        for node in graph.nodes:
            given = [values[edge.node][edge.output] for edge in node.inputs]
            self.origins.enter(given, [known[edge.node][edge.output] for edge in node.inputs])
            try:
                values[node.name] = out = self.node(node, given)
            except Exception as error:
                named = self.origins.name(error)
                diagnostics.locate(named, node, self.stack, self.library)
                if named is error:
                    raise
                raise named from error
            known[node.name] = self.origins.of_outputs(node, out)
            for name in node.last_use:
                del values[name]
        self.origins.returned = [known[edge.node][edge.output] for edge in graph.outputs]
        return tuple(values[edge.node][edge.output] for edge in graph.outputs)

    def node(self, node: Node, inputs: Sequence[Any]) -> tuple:
        """The outputs of one node, with its custom gradient if it has one."""
        if (gradient := node.kept.get("gradient")) is not None:
            return with_gradient(self, gradient, inputs, lambda *xs: self.compute(node, xs))
        return self.compute(node, inputs)

    def compute(self, node: Node, inputs: Sequence[Any]) -> tuple:
        """The outputs of one node."""
        if (handler := HANDLERS.get(node.op)) is not None:
            return handler(self, node, inputs)
        if op_def_of(node.op) is None and node.op in self.library:
            return self.call(node.op, inputs)
        if node.op in OF_STRUCTURES and not trees.is_array(inputs[0]):
            return OF_STRUCTURES[node.op](self, node, inputs)
        if (values := fold(node, inputs)) is not None:
            return values
        if node.op == "Minimum" and (bound := self._least_of(inputs)) is not None:
            return (bound,)
        if (row := table.find(node.op)) is not None:
            out = self.lower(node, row, inputs)
            if node.op == "Maximum" and (some := _sizes_of(inputs)):
                self.least[id(out)] = (out, some[0])
            if node.op == "Pack" and out.ndim == 1 and out.dtype.kind == "i":
                self.packed[id(out)] = (out, inputs)
            return tuple(out) if isinstance(out, (tuple, list)) else (out,)
        return bridge.through(node, inputs)

    def _least_of(self, inputs: Sequence[Any]) -> Any:
        """A known size that another one, which is at least that, is cut to: tf.math.bincount with
        as many bins as values.
        """
        known_sizes = _sizes_of(inputs)
        least = [self.least[id(x)][1] for x in inputs if id(x) in self.least]
        return known_sizes[0] if known_sizes and least and least[0] >= known_sizes[0] else None

    def lower(self, node: Node, row: Any, inputs: Sequence[Any]) -> Any:
        """What the row's lowering returns."""
        if (plan := node.kept.get("plan")) is None or plan[0] is not row:
            plan = node.kept["plan"] = (row, _plan(node, row))
        arguments: list[Any] = [self.key(node)] if row.signature.random else []
        for kind, what in plan[1]:
            if kind == "value":
                arguments.append(what)
            elif kind == "arrays":
                arguments.append([as_jax(x) for x in inputs[what]])
            elif kind == "array":
                arguments.append(as_jax(inputs[what]))
            elif kind == Known:
                arguments.append(inputs[what])
            elif kind == Entries:
                arguments.append(self.entries(inputs[what]))
            else:
                arguments.append(known(inputs[what], kind))
        return row.lowering(*arguments)

    def call(self, name: Any, inputs: Sequence[Any], wanted: Iterable[int] | None = None) -> tuple:
        """The outputs of a function of the library, None for those that are not wanted."""
        whole = self.library[name]
        places = range(len(whole.outputs)) if wanted is None else sorted(wanted)
        self.stack.append(str(name))
        outer, self.origins = self.origins, Origins()
        out = self.graph(whole.part(places), inputs, outer.of_operands(inputs))
        outer.returned, self.origins = self.origins.returned, outer
        self.stack.pop()
        found = dict(zip(places, out))
        return tuple(found.get(i) for i in range(len(whole.outputs)))

    def inside(self, rng: jax.Array | None, library: Library | None = None) -> Run:
        """A run inside of a branch, a loop or a gradient: it starts with the values of now."""
        made = Run(self.library if library is None else library, dict(self.variables), rng)
        made.before, made.stack = self.before, list(self.stack)
        made.origins = Origins(self.origins.values, self.origins.origins)
        return made

    def entries(self, vector: Any) -> Any:
        """A vector as a sequence; what was known when it was packed is numpy's."""
        return self.packed.get(id(vector), (None, vector))[1]

    def key(self, node: Node) -> jax.Array:
        """A key of its own for every node that draws.

        Raises:
          MissingRng: the caller gave none.
        """
        if self.rng is None:
            raise MissingRng(
                f"{node.op} draws random numbers",
                why="no key was given",
                do="pass rng=jax.random.key(0)",
            )
        self.drawn += 1
        return jax.random.fold_in(self.rng, self.drawn)


def _sizes_of(inputs: Sequence[Any]) -> list[Any]:
    """Those that are known integers."""
    return [x for x in inputs if is_known(x) and not x.ndim and x.dtype.kind == "i"]


def _plan(node: Node, row: Any) -> list[tuple[str, Any]]:
    """Where each argument of a lowering comes from: what of the inputs, or which value."""
    wanted = modes(row.lowering)[row.signature.random :]
    wanted += [""] * len(row.signature.params)
    plan: list[tuple[str, Any]] = []
    at = 0
    groups = node.groups()
    for param, mode, size in zip(row.signature.params, wanted, groups):
        if size is None:
            plan.append((f"{param.name} of {node.op}" if mode == Static else mode or "array", at))
        else:
            plan.append((Known if mode == Known else "arrays", slice(at, at + size)))
        at += 1 if size is None else size
    for param in row.signature.params[len(groups) :]:
        if param.kind != "dropped":
            value = node.attr(param.name)
            plan.append(("value", param.default if value is None else value))
    return plan


def served(op: str) -> bool:
    """Whether the engine or a lowering serves an operator."""
    return op in HANDLERS or (op_def_of(op) is not None and table.find(op) is not None)
