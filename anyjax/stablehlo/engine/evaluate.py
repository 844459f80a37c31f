"""One evaluation of a module: every operation by its row."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from anyjax.graphs.evaluation import Evaluation
from anyjax.numerics.wide_integers import Checks
from anyjax.stablehlo import custom_calls
from anyjax.stablehlo.core.region import Module, Operation, Region
from anyjax.stablehlo.core.schema import overloads, table
from anyjax.stablehlo.core.static_values import Known, Static, Value, as_jax, known, modes
from anyjax.stablehlo.engine.folding import fold
from anyjax.typing import PyTree

WIDE = (np.int64, np.uint64)
RELU = re.compile(r"relu(_\d+)?")


@dataclass(eq=False)
class Body:
    """A region as a function of arrays."""

    region: Region
    run: Callable[..., list[Any]]

    def __call__(self, *args: Any) -> list[Any]:
        return self.run(*args)


class Run(Evaluation):
    """Evaluates the functions of a module."""

    def __init__(self, module: Module, checked: bool = False):
        super().__init__(checks=Checks() if checked else None)
        self.module, self.checked = module, checked

    def function(self, name: str, args: Sequence[Value]) -> list[Any]:
        """Evaluates a function."""
        return self.region(self.module.functions[name], args, {})

    def region(
        self, region: Region, args: Sequence[Value], outer: Mapping[int, Value]
    ) -> list[Any]:
        """Evaluates a region; ``outer`` has the values of the regions around it."""
        values = {number: outer[number] for number in region.outer}
        values.update(zip(region.inputs, args))
        for operation in region.operations:
            try:
                out = self.operation(operation, values)
            except Exception as error:
                self.fail(error, partial("{0.name} at {0.where}".format, operation))
            values.update(zip(operation.outputs, out))
            for number in operation.last_use:
                del values[number]
        return [values[number] for number in region.outputs]

    def operation(self, op: Operation, values: Mapping[int, Value]) -> Sequence[Any]:
        """Evaluates one operation."""
        if op.name == "stablehlo.constant":
            return [op.arguments[0][1]]
        if op.name == "func.call":
            (_, name), (_, operands), _ = op.arguments
            return self.call(name, [values[x] for x in operands])
        arguments = [self.argument(kind, what, values) for kind, what in op.arguments]
        if (folded := fold(op, arguments)) is not None:
            return [folded]
        if op.name == "stablehlo.custom_call":
            return self.custom_call(op, *arguments)
        if op.name == "stablehlo.composite":
            return self.composite(op, *arguments)
        row = table.find(op.name)
        assert row is not None  # the parser has checked
        annotations = [*modes(row.lowering), *[""] * len(arguments)]
        kinds = [kind for kind, _ in op.arguments]
        ready = [_ready(op, *triple) for triple in zip(kinds, annotations, arguments)]
        out = row.lowering(*ready)
        kind = op.types[0] if op.types else None
        if self.checked and getattr(kind, "wide", None) in WIDE:
            self.checks.note(op.name, row.lowering, ready, out)
        return out if isinstance(out, (list, tuple)) else [out]

    def custom_call(self, op: Operation, target: str, operands: list, attributes: dict) -> Any:
        """Calls the function that serves a target; it may call functions of the module."""
        names = attributes.get("called_computations") or []
        bodies = [Body(self.module.functions[x], partial(self._outputs, x)) for x in names]
        return custom_calls.call(
            op, target, operands, {**attributes, "called_computations": bodies}
        )

    def _outputs(self, name: str, *args: Any) -> list[Any]:
        return self.function(name, args)

    def composite(self, op: Operation, result, inputs, name, attributes, decomposition, *_) -> Any:
        """Evaluates by the row of its name (CHLO's functions), else by its decomposition."""
        row = table.find(name) if name.startswith("chlo.") and overloads(name) else None
        if row is None:
            return self.function(decomposition, inputs)
        values = attributes or {}
        params = row.signature.params[len(inputs) :]
        out = row.lowering(*map(as_jax, inputs), *(values.get(p.name, p.default) for p in params))
        return out if isinstance(out, (list, tuple)) else [out]

    def argument(self, kind: str, what: PyTree, values: Mapping[int, Value]) -> Any:
        """Returns an argument of a lowering; known values are still numpy arrays."""
        if kind == "value":
            return values[what]
        if kind == "values":
            return [values[x] for x in what]
        if kind == "region":
            return Body(what, lambda *args: self.region(what, args, values))
        if kind == "regions":
            return [self.argument("region", x, values) for x in what]
        return what

    def call(self, name: str, operands: list[Value]) -> list[Any]:
        """Calls another function; jax.nn.relu keeps its gradient at 0."""
        if RELU.fullmatch(name) and len(operands) == 1:
            names = {op.name for op in self.module.functions[name].operations}
            if names <= {"stablehlo.constant", "stablehlo.broadcast_in_dim", "stablehlo.maximum"}:
                return [jax.nn.relu(as_jax(operands[0]))]
        return self.function(name, operands)


def _ready(op: Operation, kind: str, mode: str, value: PyTree) -> Any:
    """Converts an argument as its lowering declares it."""
    if kind == "value":
        if mode == Static:
            return known(value, f"an operand of {op.name}")
        return value if mode == Known else as_jax(value)
    return [as_jax(x) for x in value] if kind == "values" else value
