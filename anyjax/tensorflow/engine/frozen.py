"""A ``GraphDef`` as a function from some of its tensors to others; weights are variables again."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from anyjax.errors import BadCheckpoint, WrongArguments
from anyjax.tensorflow.core.nodes import Graph, Node
from anyjax.tensorflow.engine.concrete import Concrete
from anyjax.tensorflow.engine.functions import Function
from anyjax.tensorflow.engine.gradients import reader
from anyjax.tensorflow.engine.graph import Library, of_graph
from anyjax.tensorflow.state.references import VARIABLES, dereferenced

FEW = 4  # floating-point constants with more elements are weights
FLOATS = {x.as_datatype_enum for x in (tf.float16, tf.bfloat16, tf.float32, tf.float64)}


@dataclass(eq=False)
class Weight:
    """A value as a variable without TensorFlow; ``written`` is called with each new value."""

    value: np.ndarray
    trainable: bool = True
    written: Callable[[np.ndarray], Any] = lambda value: None

    def numpy(self) -> np.ndarray:
        """Returns the value."""
        return self.value

    def assign(self, value: object) -> None:
        """Sets the value."""
        self.value = np.asarray(value, self.value.dtype)
        self.written(self.value)


def of_graph_def(
    proto: Any,
    inputs: Iterable[str] | str | None = None,
    outputs: Iterable[str] | Mapping[str, str] | str | None = None,
    weights: bool = True,
    name: str = "GraphDef",
) -> Function:
    """Makes a function of a frozen graph; see ``from_tensorflow``.

    Raises:
      BadCheckpoint: TensorFlow does not read the graph.
      WrongArguments: it has no such input or output.
    """
    if outputs is None:
        outputs = _sinks(proto)
        outputs = outputs[0] if len(outputs) == 1 else outputs
    if inputs is None:
        inputs = _placeholders(proto, tf.nest.flatten(outputs))
    feeds = [inputs] if isinstance(inputs, str) else list(inputs)
    fed = {x.partition(":")[0] for x in feeds}
    constants = {x.name: _weight(x) for x in proto.node if weights and _is_weight(x, fed)}
    names = [re.sub(r"\W", "_", x.partition(":")[0]) for x in feeds]
    names = [f"x{i}" if x[0].isdigit() or x in names[:i] else x for i, x in enumerate(names)]
    return of_tensors(proto, dict(zip(names, feeds)), outputs, constants, name)


def of_tensors(
    owner: object,
    feeds: Mapping[str, str],
    fetches: object,
    weights: Mapping[str, Weight],
    name: str,
) -> Function:
    """Makes a function of a graph, from tensors by argument names to a structure of tensors;
    ``weights`` are its variables, and constants that become variables, by the names of their nodes.
    """
    proto = _read_weights(owner, weights)
    live = _imported(proto)
    graph_def = dereferenced(live.as_graph_def())  # which has the defaults of all attributes
    inputs = [_tensor(live, x) for x in feeds.values()]
    outputs = [_tensor(live, x) for x in tf.nest.flatten(fetches)]
    live.inputs = inputs
    read = partial(reader, np.asarray)
    input_names = tuple(x.op.name for x in inputs)
    extra = read(live, input_names)
    graph = of_graph(graph_def, input_names, [x.name for x in outputs], (), extra)
    keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(x, keyword) for x in feeds])
    specs = [tf.TensorSpec(x.shape, x.dtype) for x in outputs]
    concrete = Concrete(
        graph=graph,
        library=Library(graph_def.library, live, read),
        specs=[tf.TensorSpec(x.shape, x.dtype, key) for key, x in zip(feeds, inputs)],
        captured=[],
        outputs=tf.nest.pack_sequence_as(fetches, specs),
        type=signature,
        live=live,
    )
    function = Function(lambda *_: concrete, name, signature, owner)
    used = {x.attr("shared_name") or x.name for x in _nodes(graph) if x.op in VARIABLES}
    function.variables.update({k: v for k, v in weights.items() if k in used})
    return function


def _nodes(graph: Graph) -> Iterator[Node]:
    """Yields the nodes of a graph, of its branches and of its bodies."""
    for node in graph.nodes:
        yield node
        for inner in node.cache.values():
            if isinstance(inner, Graph):
                yield from _nodes(inner)


def _is_weight(node: Any, fed: set[str]) -> bool:
    if node.op != "Const" or node.attr["dtype"].type not in FLOATS or node.name in fed:
        return False
    shape = node.attr["value"].tensor.tensor_shape
    return int(np.prod([d.size for d in shape.dim])) > FEW


def _weight(node: Any) -> Weight:
    def write(value):
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))

    return Weight(tf.make_ndarray(node.attr["value"].tensor), written=write)


def _read_weights(proto: Any, weights: Mapping[str, Weight]) -> Any:
    """Returns the graph with weights read from variables of their names."""
    graph = type(proto)(library=proto.library, versions=proto.versions)
    for node in proto.node:
        if node.op != "Const" or node.name not in weights:
            graph.node.add().CopyFrom(node)
            continue
        handle = graph.node.add(name=f"{node.name}/resource", op="VarHandleOp")
        handle.attr["dtype"].CopyFrom(node.attr["dtype"])
        handle.attr["shape"].shape.CopyFrom(node.attr["value"].tensor.tensor_shape)
        handle.attr["shared_name"].s = node.name.encode()
        controls = [x for x in node.input if x.startswith("^")]
        read = graph.node.add(name=node.name, op="ReadVariableOp", input=[handle.name, *controls])
        read.attr["dtype"].CopyFrom(node.attr["dtype"])
    return graph


def _imported(proto: object) -> Any:
    """Imports into TensorFlow's own graph, which knows shapes and dtypes.

    Raises:
      BadCheckpoint: it does not take the proto.
    """
    live = tf.__internal__.FuncGraph("frozen")
    try:
        with live.as_default():
            tf.graph_util.import_graph_def(proto, name="")
    except (ValueError, TypeError, KeyError, tf.errors.OpError) as error:
        raise BadCheckpoint(
            "TensorFlow does not read the graph",
            why=" ".join(str(error).split())[:300],
            do="export it again, or load the library (tf.load_op_library) that has its operators",
        ) from error
    return live


def _tensor(live: Any, name: str) -> Any:
    """Returns a tensor by its name, or the first one of a node.

    Raises:
      WrongArguments: there is none.
    """
    try:
        return live.get_tensor_by_name(name if ":" in name else f"{name}:0")
    except (KeyError, ValueError):
        names = [x.name for x in live.get_operations()]
        near = difflib.get_close_matches(name.partition(":")[0], names, 3) or names[-3:]
        raise WrongArguments(
            f"the graph has no tensor {name!r}",
            why=f"of its {len(names)} nodes, these are near: {', '.join(near)}",
            do='name a node, or an output of it as in "node:1"',
        ) from None


def _placeholders(proto: Any, outputs: list[str]) -> list[str]:
    """Returns the placeholders that the outputs need, in the graph's order."""
    by_name = {node.name: node for node in proto.node}
    pending = [x.partition(":")[0] for x in outputs]
    seen: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in seen and name in by_name:
            seen.add(name)
            pending += [x.lstrip("^").partition(":")[0] for x in by_name[name].input]
    kinds = ("Placeholder", "PlaceholderV2")
    return [x.name for x in proto.node if x.name in seen and x.op in kinds]


def _sinks(proto: Any) -> list[str]:
    """Returns the nodes whose outputs no other node takes."""
    used = {x.lstrip("^").partition(":")[0] for node in proto.node for x in node.input}
    silent = {"NoOp", "Assert", "Const", "Placeholder", "SaveV2", *VARIABLES}
    return [x.name for x in proto.node if x.name not in used and x.op not in silent]
