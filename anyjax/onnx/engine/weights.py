"""Tensors of a graph as params, state, or constants whose values stay known."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import onnx
from jax.typing import ArrayLike
from onnx import helper, numpy_helper

from anyjax.dtypes import is_float
from anyjax.onnx.core.nodes import Graph, Node
from anyjax.onnx.core.running import HANDLERS
from anyjax.onnx.core.schema import Known, Static, row_of
from anyjax.onnx.engine import binding

FEW = 4  # floats of Constant nodes with more elements are weights
SMALL = 64  # elements; smaller integers are sizes, axes, places
# Floats that no optimizer should move, by operator and input.
NOT_TRAINED = {
    "input_mean", "input_var", "x_scale", "y_scale", "a_scale", "b_scale", "w_scale", "A_scale",
    "B_scale", "C_scale",
}  # fmt: skip
# Operators that need no values of their inputs, and those whose values decide how many there are.
OF_SHAPES = {"Shape", "Size"}
OF_VALUES = {"Compress", "NonMaxSuppression", "NonZero", "Unique"}


class Place(NamedTuple):
    """Stands for an input of a node."""

    number: int


def collect(
    graph: Graph, weights: bool | str
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Takes the weights out of a graph and of those inside of it; returns (params, state).

    Args:
      graph: its ``constants`` become ``weights``.
      weights: whether floats are params, or a regular expression for the names of those that are.
    """
    params: dict[str, np.ndarray] = {}
    state: dict[str, np.ndarray] = {}
    graphs = {id(graph): (graph, ""), **{id(g): (g, path) for g, path in _inside(graph)}}
    uses = uses_of(graph)
    for inner, path in graphs.values():
        for name, value in [*inner.constants.items()]:
            kind = _kind(value, uses[name], FEW if name in inner.literals else 0)
            if kind == "constant" or value.dtype == object:
                continue
            key = name if name not in params and name not in state else f"{path}/{name}"
            is_param = kind == "param" and (
                weights if isinstance(weights, bool) else re.search(weights, name) is not None
            )
            (params if is_param else state)[key] = inner.constants.pop(name)
            inner.weights[name] = key
    return params, state


def _inside(graph: Graph) -> list[tuple[Graph, str]]:
    """Returns the graphs inside of the nodes of a graph, with a path for each."""
    inside = []
    for node in graph.nodes:
        for name, inner in node.attributes.items():
            if isinstance(inner, Graph):
                inside += [(inner, f"{node.name}/{name}"), *_inside(inner)]
    return inside


def uses_of(graph: Graph) -> dict[str, set[str]]:
    """Returns by name how nodes use a value: ``Static`` where its values decide shapes, ``Known``
    where they may, or a size is computed from them, "state", or "".
    """
    uses: dict[str, set[str]] = defaultdict(set)
    makers: dict[str, Node] = {}
    sizes: list[str] = []
    for _, node in graph.each():
        makers |= dict.fromkeys(node.outputs, node)
        for name, use in _inputs(node):
            uses[name].add(use)
            if use == Static and node.op.name not in OF_VALUES:
                sizes.append(name)
    while sizes:
        maker = makers.pop(sizes.pop(), None)
        if maker is not None and maker.op.name not in OF_SHAPES:
            sizes += maker.inputs
            for name in maker.inputs:
                uses[name].add(Known)
    return uses


def _inputs(node: Node) -> Iterator[tuple[str, str]]:
    """Yields the inputs of a node with the use that it makes of each."""
    row = None if node.body or str(node.op) in HANDLERS else row_of(node.op)
    if row is None:
        yield from ((name, "" if node.body else Known) for name in node.inputs)
        return
    places = [*map(Place, range(len(node.inputs)))]
    for slot in binding.plan(node, row):
        value = slot.read(places)
        for place in value if isinstance(value, list) else [value]:
            if isinstance(place, Place):
                mode = "" if node.op.name in OF_SHAPES else slot.mode
                state = slot.param.name in NOT_TRAINED
                yield node.inputs[place.number], "state" if state else mode


def _kind(value: np.ndarray, uses: set[str], few: int) -> str:
    if Static in uses or (Known in uses and value.size <= SMALL):
        return "constant"
    if not is_float(value.dtype) or value.dtype.itemsize < 2:
        return "state" if value.size > SMALL else "constant"
    if not value.ndim or value.size <= few:
        return "constant"
    return "state" if "state" in uses else "param"


def written(proto: onnx.ModelProto, arrays: Mapping[str, ArrayLike]) -> onnx.ModelProto:
    """Returns a copy of a model with these values for its tensors."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    graphs = [("", copy.graph)]
    while graphs:
        path, graph = graphs.pop()
        for tensor, name in _tensors(graph):
            for key in (f"{path}/{name}", name):
                if key in arrays:
                    dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
                    tensor.CopyFrom(
                        numpy_helper.from_array(np.asarray(arrays[key], dtype), tensor.name)
                    )
                    break
        for node in graph.node:
            name = node.name or next(filter(None, node.output), node.op_type)
            graphs += [(f"{name}/{x.name}", x.g) for x in node.attribute if x.HasField("g")]
    return copy


def _tensors(graph: onnx.GraphProto) -> Iterator[tuple[onnx.TensorProto, str]]:
    yield from ((x, x.name) for x in graph.initializer)
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].HasField("t"):
            yield node.attribute[0].t, node.output[0]
