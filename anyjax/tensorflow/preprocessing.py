"""A function of text split in two: preprocessing in TensorFlow, and a Model of the numbers."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import tensorflow as tf

from anyjax.errors import Unsupported
from anyjax.model import Model
from anyjax.stablehlo.core.static_values import is_known
from anyjax.tensorflow.core import text
from anyjax.tensorflow.core.nodes import Edge, Node, Subgraph
from anyjax.tensorflow.engine import diagnostics
from anyjax.tensorflow.engine.concrete import Concrete, concrete_of
from anyjax.tensorflow.engine.functions import Function, plain_name
from anyjax.tensorflow.engine.inline import inlined
from anyjax.tensorflow.source import TensorFlowSource, function_of, values_of

SIZES = ("Shape", "ShapeN", "Size", "Rank")


def split_preprocessing(
    source: Any, *args: Any, signature: str | None = None, **kwargs: Any
) -> tuple[Callable[..., tuple[Any, ...]], Model]:
    """Splits a function of strings, lookup tables or Python calls in two.

    Args:
      source: a function, a model, a restored SavedModel, or the folder of one.
      *args: example arguments, arrays or ``tf.TensorSpec``.
      **kwargs: the same, by name.
      signature: which signature of a SavedModel.

    Returns:
      ``preprocess``, which TensorFlow runs: it takes the arguments of ``source`` and returns a
      tuple of the numbers that the model needs, numeric arguments among them; and the Model of
      the rest, so that ``model(*preprocess(text))`` equals ``source(text)``.

    Raises:
      Unsupported: an output is of strings.

    Example:
      >>> import tensorflow as tf
      >>> twice = lambda text: 2 * tf.cast(tf.strings.length(text), tf.float32)
      >>> spec = tf.TensorSpec([None], tf.string)
      >>> preprocess, model = anyjax.tensorflow.split_preprocessing(twice, spec)
      >>> model(*preprocess(tf.constant(["one", "three"]))).tolist()
      [6.0, 10.0]
    """
    if isinstance(source, (str, os.PathLike)):
        source = tf.saved_model.load(os.fspath(source))
    function = function_of(source, signature)
    live = function.find(*function.specs(args, kwargs)[0])
    function.add_variables(live.variables, plain_name)
    split = _Split(concrete_of(live, function.names), live)
    second = Function(lambda *_: split.model, function.name, split.model.type, source)
    second.variables.update(function.variables)
    return split.preprocess(), Model(*values_of(second), TensorFlowSource(second))


class _Split:
    """A function's graph in two; ``model`` is the second one."""

    def __init__(self, concrete: Concrete, live: Any):
        self.concrete, self.live = concrete, live
        self.graph = inlined(concrete.graph, concrete.library, self._uses_text)
        self.nodes = self.graph.by_name
        count = len(concrete.specs)
        self.arguments, captured = self.graph.inputs[:count], self.graph.inputs[count:]
        self.captured = dict(zip(captured, concrete.captured))
        constants = {k for k, v in self.captured.items() if is_known(v)}
        self.shared = _shared(self.graph.nodes, constants)
        self.first = {*self._first_nodes()}
        self._refuse_strings()
        ends = self._ends()
        subgraph = Subgraph(self.nodes, _Resolve(self))
        subgraph.add(self.graph.outputs, ends)
        order = lambda e: (e.node in self.captured, e.node in self.arguments)
        outside = sorted(subgraph.outside, key=order)
        self.crossing = [e for e in outside if e.node not in self.captured]
        subgraph = Subgraph(self.nodes, _Resolve(self))
        subgraph.outside = outside  # in the order of the model's arguments
        subgraph.add(self.graph.outputs, ends)
        names = _unique(e.node for e in self.crossing)
        keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD
        self.model = replace(
            concrete,
            graph=subgraph.graph(self.graph.name, self.graph.outputs, ends),
            specs=[self._spec(e, name) for e, name in zip(self.crossing, names)],
            captured=[self.captured[e.node] for e in outside if e.node in self.captured],
            type=inspect.Signature([inspect.Parameter(x, keyword) for x in names]),
        )

    def _uses_text(self, node: Node) -> bool:
        return text.uses_text(node.proto, self.concrete.library.protos)

    def _first_nodes(self) -> Iterator[str]:
        """Yields nodes of text, all that they need, and integers computed of these alone."""
        needed: set[str] = set()
        for node in reversed(self.graph.nodes):
            if node.name in needed or self._uses_text(node):
                needed |= {node.name, *(e.node for e in node.inputs), *node.controls}
        for node in self.graph.nodes:
            sources = {e.node for e in node.inputs} - self.shared
            if sources and sources <= needed & {*self.nodes} and self._is_exact(node):
                needed.add(node.name)
        return (x for x in needed if x in self.nodes and x not in self.shared)

    def _is_exact(self, node: Node) -> bool:
        kinds = [tf.as_dtype(x) for x in text.types(node.proto, "output_arg")]
        return all(x.is_integer or x.is_bool for x in kinds) and bool(kinds)

    def _ends(self) -> list[str]:
        """Returns the nodes of the second graph that run for their effects."""
        used = {e.node for n in self.graph.nodes for e in n.inputs}
        used |= {x for n in self.graph.nodes for x in n.controls}
        used |= {e.node for e in self.graph.outputs} | self.first
        return [n.name for n in self.graph.nodes if n.name not in used]

    def _refuse_strings(self) -> None:
        kinds = [x.dtype for x in self.live.outputs]
        for edge, kind in zip(self.graph.outputs, kinds):
            if kind == tf.string:
                node = self.nodes.get(edge.node)
                raise Unsupported(
                    "an output is of strings",
                    where=diagnostics.place(node, [], self.concrete.library) if node else "",
                    why="JAX has arrays of numbers only",
                    do="return numbers, such as the positions of labels in a list",
                )

    def _spec(self, edge: Edge, name: str) -> tf.TensorSpec:
        if edge.node in self.arguments:
            spec = self.concrete.specs[self.arguments.index(edge.node)]
            return tf.TensorSpec(spec.shape, spec.dtype, name)
        kind = text.types(self.nodes[edge.node].proto, "output_arg")[edge.output]
        return tf.TensorSpec(None, tf.as_dtype(kind), name)

    def preprocess(self) -> Callable:
        """Makes the function of the first graph."""
        fetched = [e for e in self.crossing if e.node in self.nodes]
        needed = {e.node for e in fetched}
        graph = self.live.graph.as_graph_def()
        del graph.node[:]
        for node in reversed(self.graph.nodes):
            if node.name in needed:
                needed |= {*(e.node for e in node.inputs), *node.controls}
                _write_node(graph, node)
        places = [self.arguments.index(e.node) for e in self.crossing if e not in fetched]
        captured = dict(zip(self.captured, self.live.captured_inputs))

        @tf.function(autograph=False)
        def compute(*tensors):
            capture = tf.compat.v1.get_default_graph().capture
            inside = ((name, capture(x)) for name, x in captured.items() if name in needed)
            inputs = dict((*zip(self.arguments, tensors), *inside))
            inputs = {name: x for name, x in inputs.items() if name in needed}
            names = [f"{e.node}:{e.output}" for e in fetched]
            out = tf.graph_util.import_graph_def(graph, inputs, names, name="") if names else []
            return (*out, *(tensors[i] for i in places))

        def preprocess(*args, **kwargs):
            pairs = zip(self.concrete.tensors(args, kwargs), self.concrete.specs)
            return compute(*(tf.convert_to_tensor(x, spec.dtype) for x, spec in pairs))

        return preprocess


class _Resolve:
    """Resolves an edge of the second graph: (edge, whether it is an input of it)."""

    def __init__(self, split: _Split):
        self.split = split

    def __call__(self, edge: Edge) -> tuple[Edge, bool]:
        return edge, self.passes(edge.node)

    def passes(self, name: str) -> bool:
        """Returns whether a control edge from a node can be dropped there."""
        return name not in self.split.nodes or name in self.split.first


def _shared(nodes: Iterable[Node], constants: set[str]) -> set[str]:
    """Adds nodes that are constant or computed of sizes: both graphs may compute them."""
    shared = set(constants)
    for node in nodes:
        sizes = node.op in SIZES and not text.kind_of(node.proto)
        constant = not text.kind_of(node.proto) and all(e.node in shared for e in node.inputs)
        if node.op == "Const" or sizes or (constant and node.inputs):
            shared.add(node.name)
    return shared


def _write_node(graph: Any, node: Node) -> None:
    count = sum(not x.startswith("^") for x in node.proto.input)  # without those of its gradient
    copy = graph.node.add()
    copy.CopyFrom(node.proto)
    copy.name = node.name
    copy.attr.pop("_class", None)
    edges = [f"{e.node}:{e.output}" for e in node.inputs[:count]]
    copy.input[:] = [*edges, *(f"^{x}" for x in node.controls)]


def _unique(names: Iterable[str]) -> list[str]:
    unique: list[str] = []
    for name in names:
        base = re.sub(r"\W", "_", name.rpartition("/")[2] or name)
        base = f"x_{base}" if base[0].isdigit() else base
        count, free = 0, base
        while free in unique:
            count, free = count + 1, f"{base}_{count + 1}"
        unique.append(free)
    return unique
