"""One evaluation of a graph: every node by a handler, a known value, its row, or TensorFlow's
bridge to XLA.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import jax

from anyjax import trees
from anyjax.calls.taps import Readings
from anyjax.graphs.evaluation import Evaluation
from anyjax.graphs.origins import NONE, Origin, Origins
from anyjax.numerics.wide_integers import Checks
from anyjax.stablehlo.core.static_values import as_jax, is_known, known
from anyjax.table import Row
from anyjax.tensorflow.control_flow.custom_gradient import with_gradient
from anyjax.tensorflow.core.nodes import Graph, Node
from anyjax.tensorflow.core.private import op_def_of
from anyjax.tensorflow.core.running import HANDLERS, OF_STRUCTURES
from anyjax.tensorflow.core.schema import Entries, Known, Static, modes, table
from anyjax.tensorflow.engine import bridge, diagnostics, layers, tables  # noqa: F401
from anyjax.tensorflow.engine.folding import fold
from anyjax.tensorflow.engine.graph import Library

WIDE = 9, 23  # tf.int64 and tf.uint64
PASSING = {  # their outputs are those of one function
    "PartitionedCall", "StatefulPartitionedCall", "If", "StatelessIf", "Case", "StatelessCase",
}  # fmt: skip


class Run(Evaluation):
    """The values of variables as they change, the keys that are left, the functions to call."""

    def __init__(
        self,
        library: Library,
        variables: dict[Any, Any],
        rng: jax.Array | None,
        readings: Readings | None = None,
    ):
        super().__init__(rng, readings, Checks())
        self.library, self.variables = library, variables
        self.initial = dict(variables)  # their values before the model assigned any
        self.written: set[Any] = set()
        self.packed: dict[int, tuple] = {}  # id of a vector -> vector, entries
        self.least: dict[int, tuple] = {}  # id of a size -> size, lower bound
        self.stack: list[str] = []

    def graph(
        self, graph: Graph, inputs: Sequence[Any], origins: Sequence[Origin] | None = None
    ) -> tuple:
        """Computes the outputs; ``origins`` are the arguments that the inputs come from."""
        values: dict[str, tuple] = {name: (x,) for name, x in zip(graph.inputs, inputs)}
        origins = origins or [NONE] * len(inputs)
        origins_of = {name: [o] for name, o in zip(graph.inputs, origins)}
        for node in graph.nodes:
            operands = [values[edge.node][edge.output] for edge in node.inputs]
            self.origins.enter(
                operands, [origins_of[edge.node][edge.output] for edge in node.inputs]
            )
            try:
                out = self.node(node, operands)
                if self.readings is not None:
                    out = layers.tapped(self, graph, node, operands, out)
            except Exception as error:
                where = partial(diagnostics.place, node, self.stack, self.library)
                self.fail(error, where, " of the TensorFlow graph")
            values[node.name] = out
            origins_of[node.name] = self.origins.of_outputs(out, node.op in PASSING)
            for name in node.last_use:
                del values[name]
        self.origins.returned = [origins_of[edge.node][edge.output] for edge in graph.outputs]
        return tuple(values[edge.node][edge.output] for edge in graph.outputs)

    def node(self, node: Node, inputs: Sequence[Any]) -> tuple:
        """Computes one node, with its custom gradient if it has one."""
        if (gradient := node.cache.get("gradient")) is not None:
            return with_gradient(self, gradient, inputs, lambda *xs: self.compute(node, xs))
        return self.compute(node, inputs)

    def compute(self, node: Node, inputs: Sequence[Any]) -> tuple:
        """Computes one node."""
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
            with jax.named_scope(node.name):
                out = self.lower(node, row, inputs)
            if node.op == "Maximum" and (known_sizes := _known_integers(inputs)):
                self.least[id(out)] = (out, known_sizes[0])
            if node.op == "Pack" and out.ndim == 1 and out.dtype.kind == "i":
                self.packed[id(out)] = (out, inputs)
            return tuple(out) if isinstance(out, (tuple, list)) else (out,)
        with jax.named_scope(node.name):
            return bridge.through(node, inputs)

    def _least_of(self, inputs: Sequence[Any]) -> Any:
        """Returns the minimum of a known size and one that is known to be no smaller, as
        tf.math.bincount has with as many bins as values.
        """
        known_sizes = _known_integers(inputs)
        least = [self.least[id(x)][1] for x in inputs if id(x) in self.least]
        return known_sizes[0] if known_sizes and least and least[0] >= known_sizes[0] else None

    def lower(self, node: Node, row: Row, inputs: Sequence[Any]) -> Any:
        """Calls the row's lowering."""
        if (plan := node.cache.get("plan")) is None or plan[0] is not row:
            plan = node.cache["plan"] = (row, _plan(node, row))
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
        out = row.lowering(*arguments)
        attributes = node.proto.attr
        if attributes["DstT" if node.op == "Cast" else "T"].type in WIDE:
            self.checks.note(node.op, row.lowering, arguments, out)
        return out

    def call(self, name: Any, inputs: Sequence[Any], outputs: Iterable[int] | None = None) -> tuple:
        """Computes outputs of a function of the library; the others are None."""
        graph = self.library[name]
        places = range(len(graph.outputs)) if outputs is None else sorted(outputs)
        self.stack.append(str(name))
        outer, self.origins = self.origins, Origins()
        out = self.graph(graph.for_outputs(places), inputs, outer.of_operands(inputs))
        outer.returned, self.origins = self.origins.returned, outer
        self.stack.pop()
        computed = dict(zip(places, out))
        return tuple(computed.get(i) for i in range(len(graph.outputs)))

    def nested(self, rng: jax.Array | None, library: Library | None = None) -> Run:
        """Returns a run for a branch, a loop or a gradient, with the variables' current values."""
        readings = self.readings and self.readings.nested()
        library = self.library if library is None else library
        run = type(self)(library, dict(self.variables), rng, readings)
        run.initial, run.stack, run.checks = self.initial, list(self.stack), self.checks
        run.origins = Origins(self.origins.values, self.origins.origins)
        return run

    def is_computed(self, value: Any) -> bool:
        """Returns whether the program computes a value, which is known otherwise."""
        return not is_known(value)

    def entries(self, vector: Any) -> Any:
        """Returns a vector as a sequence; entries known when it was packed are numpy arrays."""
        return self.packed.get(id(vector), (None, vector))[1]


def _known_integers(inputs: Sequence[Any]) -> list[Any]:
    """Returns the inputs that are known integers."""
    return [x for x in inputs if is_known(x) and not x.ndim and x.dtype.kind == "i"]


def _plan(node: Node, row: Row) -> list[tuple[str, Any]]:
    """Returns where each argument of a lowering comes from: an input by place, or a value."""
    annotations = modes(row.lowering)[row.signature.random :]
    annotations += [""] * len(row.signature.params)
    plan: list[tuple[str, Any]] = []
    at = 0
    groups = node.groups()
    for param, mode, size in zip(row.signature.params, annotations, groups):
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
    """Returns whether the engine or a lowering serves an operator."""
    return op in HANDLERS or (op_def_of(op) is not None and table.find(op) is not None)
