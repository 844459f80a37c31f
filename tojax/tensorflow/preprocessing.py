"""A function of text as two: what TensorFlow computes of strings, and a Model of the numbers."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import tensorflow as tf

from tojax.errors import Unsupported
from tojax.model import Model
from tojax.stablehlo.core.static_values import is_known
from tojax.tensorflow.core import text
from tojax.tensorflow.core.nodes import Edge, Node, Part
from tojax.tensorflow.engine import diagnostics
from tojax.tensorflow.engine.concrete import Concrete, concrete_of
from tojax.tensorflow.engine.functions import Function, plain_name
from tojax.tensorflow.engine.inline import inlined
from tojax.tensorflow.source import TensorFlowSource, function_of, values_of

SIZES = ("Shape", "ShapeN", "Size", "Rank")


def split_preprocessing(
    source: Any, *args: Any, signature: str | None = None, **kwargs: Any
) -> tuple[Callable, Model]:
    """A function of strings, lookup tables or Python calls in two parts.

    Args:
      source: a function, a model, a restored SavedModel, or the folder of one.
      *args, **kwargs: example arguments, arrays or ``tf.TensorSpec``.
      signature: which signature of a SavedModel.

    Returns:
      ``preprocess``, which TensorFlow runs: it takes what ``source`` takes, and gives a tuple of
      the numbers that the other part needs, numeric arguments among them; and the Model of the
      rest, so that ``model(*preprocess(text))`` is what ``source(text)`` is.

    Raises:
      Unsupported: an output is itself of strings.

    Example:
      >>> import tensorflow as tf
      >>> twice = lambda text: 2 * tf.cast(tf.strings.length(text), tf.float32)
      >>> spec = tf.TensorSpec([None], tf.string)
      >>> preprocess, model = tojax.tensorflow.split_preprocessing(twice, spec)
      >>> model(*preprocess(tf.constant(["one", "three"]))).tolist()
      [6.0, 10.0]
    """
    if isinstance(source, (str, os.PathLike)):
        source = tf.saved_model.load(os.fspath(source))
    function = function_of(source, signature)
    live = function.find(*function.specs(args, kwargs)[0])
    function.own(live.variables, plain_name)
    split = _Split(concrete_of(live, function.names), live)
    made = Function(lambda *_: split.model, function.name, split.model.type, source)
    made.variables.update(function.variables)
    return split.preprocess(), Model(*values_of(made), TensorFlowSource(made))


class _Split:
    """The two parts of a function's graph; ``model`` is the second."""

    def __init__(self, whole: Concrete, live: Any):
        self.whole, self.live = whole, live
        self.graph = inlined(whole.graph, whole.library, self._textual)
        self.nodes = self.graph.by_name
        count = len(whole.specs)
        self.arguments, rest = self.graph.inputs[:count], self.graph.inputs[count:]
        self.held = dict(zip(rest, whole.captured))
        self.neutral = _neutral(self.graph.nodes, {k for k, v in self.held.items() if is_known(v)})
        self.first = {*self._first()}
        self._refuse_strings()
        ends = self._ends()
        part = Part(self.nodes, _Resolve(self))
        part.add(self.graph.outputs, ends)
        order = lambda e: (e.node in self.held, e.node in self.arguments)
        outside = sorted(part.outside, key=order)
        self.crossing = [e for e in outside if e.node not in self.held]
        part = Part(self.nodes, _Resolve(self))
        part.outside = outside  # in the order of the model's arguments
        part.add(self.graph.outputs, ends)
        names = _unique(e.node for e in self.crossing)
        keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD
        self.model = replace(
            whole,
            graph=part.graph(self.graph.name, self.graph.outputs, ends),
            specs=[self._spec(e, name) for e, name in zip(self.crossing, names)],
            captured=[self.held[e.node] for e in outside if e.node in self.held],
            type=inspect.Signature([inspect.Parameter(x, keyword) for x in names]),
        )

    def _textual(self, node: Node) -> bool:
        return text.inside(node.proto, self.whole.library.protos)

    def _first(self) -> Iterator[str]:
        """Nodes of text, all that they need, and integers that are computed of these alone."""
        needed: set[str] = set()
        for node in reversed(self.graph.nodes):
            if node.name in needed or self._textual(node):
                needed |= {node.name, *(e.node for e in node.inputs), *node.controls}
        for node in self.graph.nodes:
            before = {e.node for e in node.inputs} - self.neutral
            if before and before <= needed and before <= {*self.nodes} and self._whole(node):
                needed.add(node.name)
        return (x for x in needed if x in self.nodes and x not in self.neutral)

    def _whole(self, node: Node) -> bool:
        kinds = [tf.as_dtype(x) for x in text.types(node.proto, "output_arg")]
        return all(x.is_integer or x.is_bool for x in kinds) and bool(kinds)

    def _ends(self) -> list[str]:
        """Nodes of the second part that run for their effects."""
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
                    where=diagnostics.place(node, [], self.whole.library) if node else "",
                    why="JAX has arrays of numbers only",
                    do="return numbers, such as the positions of labels in a list",
                )

    def _spec(self, edge: Edge, name: str) -> tf.TensorSpec:
        if edge.node in self.arguments:
            spec = self.whole.specs[self.arguments.index(edge.node)]
            return tf.TensorSpec(spec.shape, spec.dtype, name)
        kind = text.types(self.nodes[edge.node].proto, "output_arg")[edge.output]
        return tf.TensorSpec(None, tf.as_dtype(kind), name)

    def preprocess(self) -> Callable:
        """The first part."""
        fetched = [e for e in self.crossing if e.node in self.nodes]
        needed = {e.node for e in fetched}
        made = self.live.graph.as_graph_def()
        del made.node[:]
        for node in reversed(self.graph.nodes):
            if node.name in needed:
                needed |= {*(e.node for e in node.inputs), *node.controls}
                _write(made, node)
        places = [self.arguments.index(e.node) for e in self.crossing if e not in fetched]
        held = dict(zip(self.held, self.live.captured_inputs))

        @tf.function(autograph=False)
        def compute(*tensors):
            capture = tf.compat.v1.get_default_graph().capture
            inside = ((name, capture(x)) for name, x in held.items() if name in needed)
            given = dict((*zip(self.arguments, tensors), *inside))
            given = {name: x for name, x in given.items() if name in needed}
            names = [f"{e.node}:{e.output}" for e in fetched]
            found = tf.graph_util.import_graph_def(made, given, names, name="") if names else []
            return (*found, *(tensors[i] for i in places))

        def preprocess(*args, **kwargs):
            given = self.whole.tensors(args, kwargs)
            pairs = zip(given, self.whole.specs)
            return compute(*(tf.convert_to_tensor(x, spec.dtype) for x, spec in pairs))

        return preprocess


class _Resolve:
    """What an edge is in the second part: (edge, whether it is an input of it)."""

    def __init__(self, split: _Split):
        self.split = split

    def __call__(self, edge: Edge) -> tuple[Edge, bool]:
        return edge, self.passes(edge.node)

    def passes(self, name: str) -> bool:
        """Whether a control edge from a node means nothing there."""
        return name not in self.split.nodes or name in self.split.first


def _neutral(nodes: Iterable[Node], found: set[str]) -> set[str]:
    """Constants, and what is computed of sizes: both parts may compute them."""
    for node in nodes:
        sizes = node.op in SIZES and not text.kind_of(node.proto)
        constant = not text.kind_of(node.proto) and all(e.node in found for e in node.inputs)
        if node.op == "Const" or sizes or (constant and node.inputs):
            found.add(node.name)
    return found


def _write(graph: Any, node: Node) -> None:
    """Adds a node to a ``GraphDef``."""
    count = sum(not x.startswith("^") for x in node.proto.input)  # without those of its gradient
    copy = graph.node.add()
    copy.CopyFrom(node.proto)
    copy.name = node.name
    copy.attr.pop("_class", None)
    edges = [f"{e.node}:{e.output}" for e in node.inputs[:count]]
    copy.input[:] = [*edges, *(f"^{x}" for x in node.controls)]


def _unique(names: Iterable[str]) -> list[str]:
    """Names of parameters."""
    found: list[str] = []
    for name in names:
        plain = re.sub(r"\W", "_", name.rpartition("/")[2] or name)
        plain = f"x_{plain}" if plain[0].isdigit() else plain
        count, free = 0, plain
        while free in found:
            count, free = count + 1, f"{plain}_{count + 1}"
        found.append(free)
    return found
