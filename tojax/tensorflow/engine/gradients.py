"""Custom gradients of a graph: TensorFlow registers each under a name that its node carries."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import tensorflow as tf

from tojax import warn_once
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
            gradient, edges = _gradient(node, live, function, names, captured_of)
        except (NotImplementedError, LookupError, ValueError) as error:  # raised if it is needed
            gradient, edges = Gradient([], len(node.inputs), error=error), []
        node.kept["gradient"] = gradient
        return edges

    return read


def _gradient(node, live, function, names, captured_of) -> tuple[Gradient, list[Edge]]:
    """The gradient of a node, and which values of its graph it captured."""
    found = _traced(live, node, function)
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
    gradient.read = partial(_graph_of, found, captured_of)
    return gradient, edges


def _registered(kind: str, node: Node) -> Any:
    try:
        return gradient_registry.lookup(kind)
    except LookupError:
        warn_once.warn(
            f"the custom gradient of {node.name} is not in the model: it is differentiated as its "
            "operations are (a SavedModel keeps it if it is saved with "
            "tf.saved_model.SaveOptions(experimental_custom_gradients=True))",
            LostGradient,
        )
        return None


def _traced(live: Any, node: Node, function: Callable) -> Any:
    """The gradient as a function of the cotangents, traced inside of the node's own graph.

    In a thread of its own: a gradient that jax2tf made calls JAX, which refuses that in a trace.
    """
    op = live.get_operation_by_name(node.name)

    def gradient(*sent):
        found = function(op, *sent)
        found = found if isinstance(found, (list, tuple)) else [found]
        return [tf.convert_to_tensor(x) if isinstance(x, tf.IndexedSlices) else x for x in found]

    def trace():
        with live.as_default():
            specs = [tf.TensorSpec(x.shape, x.dtype) for x in op.outputs]
            return tf.function(gradient, autograph=False).get_concrete_function(*specs)

    with ThreadPoolExecutor(1) as worker:
        return worker.submit(trace).result()


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


def _graph_of(found: Any, captured_of: Callable[[Any], Any]) -> tuple[Any, Library]:
    """The gradient's own graph: read when it is first needed, because its operations may have
    gradients in turn, and those too, without an end.
    """
    proto = found.graph.as_graph_def()
    inputs = tuple(x.op.name for x in found.inputs)
    read = partial(reader, captured_of)
    outputs = [x.name for x in found.outputs]
    graph = of_graph(proto, inputs, outputs, extra=read(found.graph, inputs))
    return graph, Library(proto.library, found.graph, read)
