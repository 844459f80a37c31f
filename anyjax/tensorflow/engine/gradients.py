"""Custom gradients of a graph: TensorFlow registers each under a name that its node carries."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import tensorflow as tf

from anyjax import warn_once
from anyjax.errors import LostGradient, Unsupported
from anyjax.tensorflow.control_flow.custom_gradient import Gradient
from anyjax.tensorflow.core.nodes import Edge, Node
from anyjax.tensorflow.core.private import gradient_registry
from anyjax.tensorflow.engine.graph import Extra, Library, of_graph

CALLS = ("PartitionedCall", "StatefulPartitionedCall")  # their functions have the gradients


def reader(captured_of: Callable[[Any], Any], live: Any, inputs: tuple[str, ...]) -> Extra:
    """Returns a function that adds its custom gradient to a node and returns the edges it needs.

    ``live`` is TensorFlow's graph of the node, ``inputs`` are its inputs' names in the proto, and
    ``captured_of`` returns the handle or value of an eager tensor.
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
        node.cache["gradient"] = gradient
        return edges

    return read


def _gradient(node, live, function, names, captured_of) -> tuple[Gradient, list[Edge]]:
    """Returns the gradient of a node, and the edges of its graph that it captured."""
    traced = _traced(live, node, function)
    leaves = tf.nest.flatten(traced.structured_outputs)
    places = [i for i, x in enumerate(leaves) if x is not None]
    gradient = Gradient(places=places, input_count=len(node.inputs))
    edges: list[Edge] = []
    for tensor in traced.captured_inputs:
        if hasattr(tensor, "numpy"):
            gradient.captured.append(("constant", captured_of(tensor)))
            continue
        edge = _edge(tensor, live, names)
        if edge.node == node.name:
            gradient.captured.append(("own output", edge.output))
        else:
            gradient.captured.append(("edge", len(edges)))
            edges.append(edge)
    gradient.read = partial(_graph_of, traced, captured_of)
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
    """Traces the gradient as a function of the cotangents, inside of the node's own graph.

    It runs in a new thread: a gradient of jax2tf calls JAX, which refuses that in a trace.
    """
    op = live.get_operation_by_name(node.name)

    def gradient(*cotangents):
        grads = function(op, *cotangents)
        grads = grads if isinstance(grads, (list, tuple)) else [grads]
        return [tf.convert_to_tensor(x) if isinstance(x, tf.IndexedSlices) else x for x in grads]

    def trace():
        with live.as_default():
            specs = [tf.TensorSpec(x.shape, x.dtype) for x in op.outputs]
            return tf.function(gradient, autograph=False).get_concrete_function(*specs)

    with ThreadPoolExecutor(1) as worker:
        return worker.submit(trace).result()


def _edge(tensor: Any, live: Any, names: dict[str, str]) -> Edge:
    """Returns the edge of a captured tensor in the node's graph."""
    if tensor.graph is not live:
        tensor = next((inner for outer, inner in live.captures if outer is tensor), None)
        if tensor is None:
            raise Unsupported(
                "a custom gradient captures a tensor of a graph around its function",
                why="the function itself does not get that tensor",
                do="pass it to the function as an argument",
            )
    return Edge(names.get(tensor.op.name, tensor.op.name), tensor.value_index)


def _graph_of(traced: Any, captured_of: Callable[[Any], Any]) -> tuple[Any, Library]:
    """Reads the gradient's graph, on its first use: its operations may have gradients in turn,
    without an end.
    """
    proto = traced.graph.as_graph_def()
    inputs = tuple(x.op.name for x in traced.inputs)
    read = partial(reader, captured_of)
    outputs = [x.name for x in traced.outputs]
    graph = of_graph(proto, inputs, outputs, extra=read(traced.graph, inputs))
    return graph, Library(proto.library, traced.graph, read)
