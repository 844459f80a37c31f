"""Custom gradients of a graph: TensorFlow registers each under a name that its node carries."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import tensorflow as tf

from tojax.errors import LostGradient, Unsupported
from tojax.tensorflow.control_flow.custom_gradient import Gradient
from tojax.tensorflow.core.nodes import Edge, Node
from tojax.tensorflow.core.private import gradient_registry
from tojax.tensorflow.engine.graph import Extra, Library, of_graph

CALLS = ("PartitionedCall", "StatefulPartitionedCall")  # theirs are those of what they call


def reader(captured_of: Callable[[Any], Any], live: Any, inputs: tuple[str, ...]) -> Extra:
    """A function of a node that gives it its custom gradient and tells the edges that this needs.

    ``live`` is TensorFlow's graph of the node, ``inputs`` are its inputs' names in the proto, and
    ``captured_of`` tells what an eager tensor stands for.
    """
    names = {x.op.name: name for x, name in zip(live.inputs, inputs)}

    def read(node: Node) -> list[Edge]:
        kind = node.attr("_gradient_op_type")
        if kind is None or kind.startswith(CALLS):
            return []
        function = _registered(kind, node)
        if function is None:
            return []
        try:
            found = _traced(live, node, function)
        except NotImplementedError as error:  # the gradient of recompute_grad's gradient
            node.kept["gradient"] = Gradient([], len(node.inputs), error=error)
            return []
        leaves = tf.nest.flatten(found.structured_outputs)
        places = [i for i, x in enumerate(leaves) if x is not None]
        gradient = Gradient(places=places, own=len(node.inputs))
        edges: list[Edge] = []
        for tensor in found.captured_inputs:
            if hasattr(tensor, "numpy"):
                gradient.captured.append(("constant", captured_of(tensor)))
                continue
            edge = _edge(tensor, live, names)
            if edge.node == node.name:
                gradient.captured.append(("own output", edge.output))
            else:
                gradient.captured.append(("edge", len(edges)))
                edges.append(edge)
        _read_graph(gradient, found, captured_of)
        node.kept["gradient"] = gradient
        return edges

    return read


def _registered(kind: str, node: Node) -> Any:
    try:
        return gradient_registry.lookup(kind)
    except LookupError:
        warnings.warn(
            f"the custom gradient of {node.name} is not in the model: it is differentiated as its "
            "operations are (a SavedModel keeps it if it is saved with "
            "tf.saved_model.SaveOptions(experimental_custom_gradients=True))",
            LostGradient,
            stacklevel=2,
        )
        return None


def _traced(live: Any, node: Node, function: Callable) -> Any:
    """The gradient as a function of the cotangents, traced inside of the node's own graph."""
    op = live.get_operation_by_name(node.name)

    def gradient(*sent):
        found = function(op, *sent)
        found = found if isinstance(found, (list, tuple)) else [found]
        return [tf.convert_to_tensor(x) if isinstance(x, tf.IndexedSlices) else x for x in found]

    with live.as_default():
        specs = [tf.TensorSpec(x.shape, x.dtype) for x in op.outputs]
        return tf.function(gradient, autograph=False).get_concrete_function(*specs)


def _edge(tensor: Any, live: Any, names: dict[str, str]) -> Edge:
    """Where a captured tensor is computed in the node's graph."""
    if tensor.graph is not live:
        tensor = next((inner for outer, inner in live.captures if outer is tensor), None)
        if tensor is None:
            raise Unsupported(
                "a custom gradient captures a tensor of a graph around its function",
                why="the function itself does not get that tensor",
                do="pass it to the function as an argument",
            )
    return Edge(names.get(tensor.op.name, tensor.op.name), tensor.value_index)


def _read_graph(gradient: Gradient, found: Any, captured_of: Callable[[Any], Any]) -> None:
    proto = found.graph.as_graph_def()
    inputs = tuple(x.op.name for x in found.inputs)
    read = partial(reader, captured_of)
    outputs = [x.name for x in found.outputs]
    gradient.graph = of_graph(proto, inputs, outputs, extra=read(found.graph, inputs))
    gradient.library = Library(proto.library, found.graph, read)
