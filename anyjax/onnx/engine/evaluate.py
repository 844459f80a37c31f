"""One evaluation of a graph: every node by its function, a handler, known values, or its row."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax

from anyjax import trees
from anyjax.calls.taps import Readings
from anyjax.errors import BadCheckpoint
from anyjax.graphs.evaluation import Evaluation
from anyjax.graphs.origins import NONE, Origin
from anyjax.numerics.wide_integers import Checks
from anyjax.onnx import control_flow, ops  # noqa: F401  (they fill the registries)
from anyjax.onnx.core.nodes import Graph, Node
from anyjax.onnx.core.running import HANDLERS
from anyjax.onnx.core.schema import Known, Static, row_of
from anyjax.onnx.engine import binding, schema_functions
from anyjax.onnx.engine.folding import fold
from anyjax.stablehlo.core.static_values import as_jax, is_known, known
from anyjax.table import Row
from anyjax.typing import PyTree

INT64 = 7  # of onnx.TensorProto
PASSING = {"If"}  # its outputs are those of one graph


class Run(Evaluation):
    """The values by name, those of the graphs around it too, and the keys that are left."""

    def __init__(
        self,
        weights: Mapping[str, jax.Array],
        rng: jax.Array | None = None,
        readings: Readings | None = None,
        origins_of: dict[str, Origin] | None = None,
    ):
        super().__init__(rng, readings, Checks())
        self.weights = weights
        self.values: ChainMap[str, Any] = ChainMap()
        self.origins_of: ChainMap[str, Origin] = ChainMap({} if origins_of is None else origins_of)
        self.narrow: set[str] = set()  # integers of 32 bits, which may wrap

    def graph(
        self, graph: Graph, inputs: Sequence[PyTree], origins: Sequence[Origin] | None = None
    ) -> list[Any]:
        """Computes the outputs of a graph; ``origins`` are the arguments its inputs come from."""
        origins = origins or [NONE] * len(inputs)
        self.values.update(graph.constants)
        self.values.update({name: self.weights[key] for name, key in graph.weights.items()})
        self.values.update(zip(graph.inputs, inputs))
        self.origins_of.update(zip(graph.inputs, origins))
        for node in graph.nodes:
            self._enter(node)
            operands = [self._value(name, node) for name in node.inputs]
            try:
                outputs = self._outputs(node, operands)
            except Exception as error:
                self.fail(error, node.place, " of the ONNX graph")
            passing = node.op.name in PASSING or node.body is not None
            self.values.update(outputs)
            if self._is_narrow(node):
                self.narrow.update(outputs)
            self.origins_of.update(
                zip(outputs, self.origins.of_outputs([*outputs.values()], passing))
            )
        self.origins.returned = [self.origins_of.get(name, NONE) for name in graph.outputs]
        return [self._value(name, None) for name in graph.outputs]

    def _enter(self, node: Node) -> None:
        names = [name for name in node.inputs if name]
        self.origins.enter(
            [self.values.get(name) for name in names],
            [self.origins_of.get(name, NONE) for name in names],
        )

    def _value(self, name: str, node: Node | None) -> Any:
        if not name:
            return None
        try:
            return self.values[name]
        except KeyError:
            raise BadCheckpoint(
                f"nothing computes the value {name!r}",
                where=node.place() if node else "the outputs of the graph",
                why="the nodes of an ONNX graph stand in the order of their evaluation",
                do="export the model again, or look with onnx.checker.check_model",
            ) from None

    def _outputs(self, node: Node, operands: list[PyTree]) -> dict[str, Any]:
        """Computes one node; returns its outputs by name, those that nothing uses left out."""
        computed = self.compute(node, operands)
        if len(computed) < len(node.outputs) and any(node.outputs[len(computed) :]):
            raise BadCheckpoint(
                f"{node.op} with {len(node.outputs)} outputs",
                why=f"it has {len(computed)}",
                do="export the model again",
            )
        pairs = [(name, x) for name, x in zip(node.outputs, computed) if name]
        outputs = {name: x() if callable(x) else x for name, x in pairs}
        if self.readings is None:
            return outputs
        called: tuple[tuple, dict] = tuple(map(as_jax, operands)), {}
        tap = lambda name, x: self.tapped(name, x, called, lambda x: x, as_jax, is_known)
        return {k: tap(k, x) if trees.is_array(x) else x for k, x in outputs.items()}

    def compute(self, node: Node, operands: list[PyTree]) -> Sequence[Any]:
        """Computes all outputs of one node; functions stand for some that may not be needed."""
        if node.body is not None:
            return self.call(node.body, node, operands)
        if (handler := HANDLERS.get(str(node.op))) is not None:
            return handler(self, node, operands)
        with jax.named_scope(node.name):
            if (row := row_of(node.op)) is None:
                return self.call(schema_functions.body(node, operands), node, operands)
            return self._lower(node, row, operands)

    def _lower(self, node: Node, row: Row, operands: list[PyTree]) -> Sequence[Any]:
        plan = binding.plan(node, row)
        arguments = [slot.read(operands) for slot in plan]

        def compute() -> Any:
            key = [self.key(node)] if row.signature.random else []
            return row.lowering(*key, *(_converted(x, s, node) for x, s in zip(arguments, plan)))

        if not row.signature.random and (values := fold(node, arguments, compute)) is not None:
            return values
        out = compute()
        if not self._is_narrow(node) and not row.signature.random:
            converted = [_converted(x, s, node) for x, s in zip(arguments, plan)]
            self.checks.note(node.op.name, row.lowering, converted, out)
        return out if isinstance(out, tuple) else (out,)

    def _is_narrow(self, node: Node) -> bool:
        """Returns whether the integers that a node gives have 32 bits in ONNX."""
        if node.op.name == "Cast":
            return node.attributes["to"] != INT64
        return not self.narrow.isdisjoint(node.inputs)

    def call(self, body: Graph, node: Node, inputs: Sequence[PyTree]) -> list[Any]:
        """Evaluates the body of a function, which sees its inputs alone."""
        names = zip(body.outputs, node.outputs)
        body = replace(body, outputs=tuple(name if used else "" for name, used in names))
        inner = self._inner(self.rng)
        inner.drawn = self.drawn
        out = inner.graph(body, _filled(body, inputs), self.origins.of_operands(inputs))
        self.drawn = inner.drawn
        self.origins.returned = inner.origins.returned
        return out

    def nested(
        self, graph: Graph, inputs: Sequence[PyTree], rng: jax.Array | None = None
    ) -> list[Any]:
        """Evaluates a graph inside of a node, which sees the values around it."""
        inner = self._inner(rng)
        inner.readings = self.readings and self.readings.nested()
        inner.values = self.values.new_child()
        inner.origins_of = self.origins_of.new_child()
        out = inner.graph(graph, inputs, [self.origins.all()] * len(inputs))
        self.origins.returned = inner.origins.returned
        return out

    def _inner(self, rng: jax.Array | None) -> Run:
        inner = Run(self.weights, rng, self.readings)
        inner.checks, inner.narrow = self.checks, self.narrow
        return inner

    def branch_key(self, node: Node) -> jax.Array | None:
        """Returns a key for the graphs of a node, None if the caller gave none."""
        return None if self.rng is None else self.key(node)


def _filled(body: Graph, inputs: Sequence[PyTree]) -> list[Any]:
    """Returns the inputs of a function, None for those that the node leaves out."""
    return [*inputs, *[None] * (len(body.inputs) - len(inputs))]


def _converted(value: PyTree, slot: binding.Slot, node: Node) -> Any:
    """Returns an argument as the lowering asks for it."""
    if slot.mode == Static and value is not None:
        return known(value, f"{slot.param.name} of {node.op}")
    if slot.mode == Known or slot.param.kind not in ("array", "arrays"):
        return value
    return [as_jax(x) for x in value] if isinstance(value, list) else as_jax(value)
