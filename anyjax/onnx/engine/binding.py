"""Where each argument of a lowering comes from: inputs and attributes of a node, by name.

An older version of an operator may have as an attribute what the newest has as an input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from anyjax.errors import BadCheckpoint, Unsupported
from anyjax.onnx.core.dtypes import to_numpy
from anyjax.onnx.core.nodes import Node
from anyjax.onnx.core.schema import RENAMED, inputs, modes, read
from anyjax.table import REQUIRED, Param, Row

Argument = Callable[[Sequence[Any]], Any]
IGNORED = {"consumed_inputs", "spatial", "is_test"}  # of versions whose nodes may still have them


class Slot(NamedTuple):
    """An argument of a lowering: how to read it from the inputs, its parameter, its mode."""

    read: Argument
    param: Param
    mode: str


def plan(node: Node, row: Row) -> list[Slot]:
    """Returns the arguments of a row's lowering, without the key.

    Raises:
      BadCheckpoint: something that the schema requires is left out.
      Unsupported: the node has what no parameter of the row takes.
    """
    if (cached := node.cache.get("plan")) is not None and cached[0] is row:
        return cached[1]
    slots = _slots(node, row)
    attributes = {RENAMED.get((node.op.name, k), k): v for k, v in node.attributes.items()}
    if node.op.name == "Split":  # which older versions count by the outputs of the node
        attributes.setdefault("num_outputs", len(node.outputs))
    defaults = {
        p.name: p.default for p in read(node.op).params if p.kind not in ("array", "arrays")
    }
    mode = dict(
        zip((p.name for p in row.signature.params), modes(row.lowering)[row.signature.random :])
    )
    arguments = []
    for param in row.signature.params:
        if param.name in slots:
            argument = _input(slots[param.name])
        else:
            value = attributes.pop(param.name, None)
            value = defaults.get(param.name, param.default) if value is None else value
            argument = _fixed(node, param, value)
        arguments.append(Slot(argument, param, mode.get(param.name, "")))
    _refuse_further(node, attributes, defaults)
    node.cache["plan"] = row, arguments
    return arguments


def _slots(node: Node, row: Row) -> dict[str, int | slice]:
    """Returns the places of a node's inputs by the names of the row's parameters."""
    row_inputs = [p.name for p in row.signature.params if p.kind in ("array", "arrays")]
    node_inputs = inputs(node.op)
    names = {p.name for p in node_inputs}
    slots: dict[str, int | slice] = {}
    for i, param in enumerate(node_inputs):
        name = param.name
        if name not in row_inputs and i < len(row_inputs) and row_inputs[i] not in names:
            name = row_inputs[i]  # renamed
        place = slice(i, None) if param.kind == "arrays" else i
        if name in row_inputs:
            slots[name] = place
        elif any(node.inputs[place] if isinstance(place, slice) else node.inputs[i : i + 1]):
            raise Unsupported(
                f"{node.op} with the input {param.name!r}",
                where=node.place(),
                why=f"version {node.op.version} of it has this input, which newer ones dropped",
                do="export the model in a newer opset",
            )
    if len(node.inputs) > len(node_inputs) and not any(p.kind == "arrays" for p in node_inputs):
        raise BadCheckpoint(
            f"{node.op} with {len(node.inputs)} inputs",
            where=node.place(),
            why=f"its schema is {read(node.op).text}",
            do="export the model again",
        )
    return slots


def _input(place: int | slice) -> Argument:
    if isinstance(place, slice):
        return lambda inputs: list(inputs[place])
    return lambda inputs: inputs[place] if place < len(inputs) else None


def _fixed(node: Node, param: Param, value: object) -> Argument:
    if value is REQUIRED:
        raise BadCheckpoint(
            f"{node.op} without {param.name}",
            where=node.place(),
            why=f"its schema is {read(node.op).text}",
            do="export the model again",
        )
    if param.kind == "array" and value is not None:  # an attribute of an older version
        value = np.asarray(value, np.float32 if isinstance(value, float) else None)
    elif param.kind == "arrays":
        value = []
    elif param.kind == "dtype" and isinstance(value, int):
        value = to_numpy(value) if value else None
    return lambda inputs: value


def _refuse_further(
    node: Node, attributes: Mapping[str, object], defaults: Mapping[str, object]
) -> None:
    for name, value in attributes.items():
        if name in IGNORED or value == defaults.get(name, ()):
            continue
        raise Unsupported(
            f"{node.op} with {name}={value!r}",
            where=node.place(),
            why=f"no version of it that has a lowering has this attribute: {read(node.op).text}",
            do="export the model in a newer opset",
        )
