"""A TensorFlow function as one side of a comparison: node by node, by TensorFlow's kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import jax
import numpy as np
import tensorflow as tf

from anyjax.compare.side import Call, Passed, Values, input_name, is_float
from anyjax.compare.sides.jax_side import JaxSide
from anyjax.errors import Unsupported
from anyjax.model import Model
from anyjax.stablehlo.core.static_values import as_jax
from anyjax.tensorflow.core import text
from anyjax.tensorflow.core.nodes import Node
from anyjax.tensorflow.core.private import NotOk
from anyjax.tensorflow.core.running import HANDLERS
from anyjax.tensorflow.core.schema import table
from anyjax.tensorflow.engine import diagnostics
from anyjax.tensorflow.engine.concrete import Concrete
from anyjax.tensorflow.engine.evaluate import Run
from anyjax.tensorflow.engine.folding import kernel
from anyjax.tensorflow.engine.graph import Library
from anyjax.tensorflow.engine.widen import WideLibrary, widened
from anyjax.tensorflow.source import TensorFlowSource, from_tensorflow, values_of
from anyjax.trees import is_array
from anyjax.typing import PyTree


class WideRun(Run):
    """One evaluation in 64 bits, of operators too that return 32 whatever they take."""

    def compute(self, node: Node, inputs: Sequence[PyTree]) -> tuple:
        """Computes one node."""
        return tuple(map(_widened, super().compute(node, inputs)))


class WideSource(TensorFlowSource):
    """A TensorFlow function that JAX computes in 64 bits."""

    def start(self, *arguments: Any) -> WideRun:
        """Returns the run of one call."""
        return WideRun(*arguments)


class KernelRun(Run):
    """One evaluation of a graph by TensorFlow's kernels; loops and branches run in Python.

    Attributes:
      narrow: collects the nodes for which TensorFlow has no kernel of these dtypes.
    """

    narrow: set[str] = set()
    watched: str | None = None  # a node whose inputs are noted
    inputs: list[list[PyTree]] = []

    def compute(self, node: Node, inputs: Sequence[PyTree]) -> tuple:
        """Computes one node; where TensorFlow has no kernel of 64 bits, by JAX."""
        values = [np.asarray(x) if isinstance(x, jax.Array) else x for x in inputs]
        if node.name == self.watched:
            self.inputs.append(values)
        if node.op in ("While", "StatelessWhile", "_While"):
            return self._loop(node, values)
        row = table.find(node.op)
        random = row is not None and row.signature.random  # JAX's numbers on both sides
        if node.op in HANDLERS or node.op in self.library or random:
            return super().compute(node, values)
        is_wide = isinstance(self.library, WideLibrary)
        try:
            outputs = kernel(node, values)
        except NotOk as error:
            missing = (tf.errors.NOT_FOUND, *([tf.errors.INVALID_ARGUMENT] if is_wide else []))
            if error.code not in missing:
                raise
        else:
            if not is_wide or not any(map(_is_narrow, outputs)):
                return outputs
        self.narrow.add(node.name)
        outputs = super().compute(node, [*map(as_jax, values)])
        return tuple(map(_widened, outputs)) if is_wide else outputs

    def is_computed(self, value: PyTree) -> bool:
        """Returns True: kernels compute numpy's arrays."""
        return True

    def nested(self, rng: jax.Array | None, library: Library | None = None) -> KernelRun:
        """Returns a run for a loop."""
        inner = cast(KernelRun, super().nested(rng, library))
        inner.narrow, inner.watched, inner.inputs = self.narrow, self.watched, self.inputs
        return inner

    def _loop(self, node: Node, values: list[PyTree]) -> tuple:
        inner = self.nested(self.rng)
        while np.asarray(inner.call(node.attr("cond"), values)[0]).all():
            values = [*inner.call(node.attr("body"), values)]
        self.variables = inner.variables
        self.written |= inner.written
        return tuple(values)


@dataclass(frozen=True, eq=False)
class KernelSource(TensorFlowSource):
    """A TensorFlow function that TensorFlow's kernels compute."""

    narrow: set[str] = field(default_factory=set)
    watched: str | None = None
    inputs: list[list[PyTree]] = field(default_factory=list)

    def start(self, *arguments: Any) -> KernelRun:
        """Returns the run of one call."""
        run = KernelRun(*arguments)
        run.narrow, run.watched, run.inputs = self.narrow, self.watched, self.inputs
        return run


class GraphSide(JaxSide):
    """A Model of a TensorFlow function, whose parts are nodes."""

    has_inputs = False
    unit = "nodes"

    def __init__(self, model: Model, call: Call, without_dropout: bool = False):
        super().__init__(model, call, without_dropout)
        self.graph_source = cast(TensorFlowSource, model.source)

    def source(self, wide: bool = False) -> TensorFlowSource:
        """Returns what computes the model, see ``JaxSide``."""
        source = self.graph_source
        if not wide:
            return source
        concrete = widened(self.concrete)
        function = replace(source.function, find=lambda *_: concrete, traced={}, wide={})
        if isinstance(source, KernelSource):
            return replace(source, function=function)
        return WideSource(function, source.training, taps=source.taps)

    @property
    def concrete(self) -> Concrete:
        """The graph of this call."""
        return self.graph_source.concrete(self.args, self.kwargs)

    def kinds(self) -> dict[str, str]:
        """Returns the operator of each node, by name."""
        library = self.concrete.library
        functions = {*library}
        graphs, operators = [self.concrete.graph], dict[str, str]()
        for graph in graphs:
            for node in graph.nodes:
                operators[node.name] = node.op
                called = {node.op, *text.functions(node.proto)} & functions
                functions -= called
                graphs += [library[x] for x in sorted(called)]
        return operators

    def node(self, name: str) -> Node | None:
        """Returns a node of the graph, or of the functions that it calls."""
        graphs = [self.concrete.graph, *(self.concrete.library[x] for x in self.concrete.library)]
        return next((x.by_name[name] for x in graphs if name in x.by_name), None)

    def code_line(self, path: str) -> str:
        """Returns the line of Python that made a node, or ""."""
        library = self.concrete.library
        stacks = [[], *([x] for x in library)]
        lines = (diagnostics.line_of(library.live, stack, path) for stack in stacks)
        file, _, line = next(filter(None, lines), "").rpartition(":")
        return f"line {line} of {file}".replace("\\", "/") if file else ""


class TensorFlowSide(GraphSide):
    """A TensorFlow function, run by TensorFlow's kernels node by node."""

    name = "TensorFlow"
    compiled = False

    def __init__(self, model: Model, call: Call):
        source = cast(TensorFlowSource, model.source)
        self.kernels = KernelSource(source.function, source.training)
        super().__init__(replace(model, source=self.kernels), call)

    def forward(self, wide: bool = False, forced: Values | None = None) -> Passed:
        """Evaluates the graph, see ``Side``."""
        passed = super().forward(wide, forced)
        call = None
        if not wide and forced is None and self.is_callable and self.rng is None:
            call = [x.numpy() for x in _floats(self._call(*jax.tree.map(_tensor, self.arguments)))]
        return replace(passed, narrow=frozenset(self.kernels.narrow), call=call)

    def gradients(self, cotangents: list[np.ndarray], wide: bool = False) -> Passed:
        """Computes gradients by a tape, see ``Side``; in 32 bits alone."""
        if not self.is_callable:
            raise Unsupported(
                "gradients of a graph that TensorFlow does not call",
                where=self.model.source.name,
                why="its weights are constants, which a tape cannot watch",
                do="pass the Keras model or the function as reference=",
            )
        args, kwargs = jax.tree.map(_tensor, self.arguments)
        tensors = [x for x in jax.tree.leaves((args, kwargs)) if isinstance(x, tf.Tensor)]
        inputs = {input_name(i): x for i, x in enumerate(_floats(tensors))}
        variables = {k: self.kernels.function.variables[k] for k in self.model.params}
        leaves = dict(reversed(variables.items())) | inputs
        with tf.GradientTape() as tape:
            tape.watch([*inputs.values()])
            outputs = _floats(self._call(args, kwargs))
            total = sum(tf.reduce_sum(x * tf.cast(c, x.dtype)) for x, c in zip(outputs, cotangents))
        grads = zip(leaves, tape.gradient(total, [*leaves.values()]))
        values = {k: [tf.convert_to_tensor(x).numpy()] for k, x in grads if x is not None}
        return Passed(values, narrow=frozenset(values))

    def inputs_of(self, name: str) -> list[PyTree]:
        """Returns what a node is first computed from, None for each that is no array."""
        kernels = replace(self.kernels, watched=name, inputs=[])
        model = self.model
        kernels(model.params, model.state, self.args, self.kwargs, self.rng)
        (inputs, *_) = kernels.inputs or [[None]]
        return [x if is_array(x) else None for x in inputs]

    @property
    def arguments(self) -> tuple[tuple, dict[str, PyTree]]:
        """The arguments of TensorFlow's own call."""
        source = self.kernels
        mode: dict[str, Any] = {"training": source.training} if source.function.moded else {}
        return self.args, {**mode, **self.kwargs}

    @property
    def is_callable(self) -> bool:
        """Whether TensorFlow itself calls the function."""
        return callable(self.kernels.function.owner)

    def _call(self, args: tuple, kwargs: dict[str, PyTree]) -> PyTree:
        """Calls the function, and restores the variables that it assigns."""
        function = self.kernels.function
        if hasattr(function.owner, "structured_input_signature"):  # it takes names alone
            args, kwargs = (), {**dict(zip(function.signature.parameters, args)), **kwargs}
        originals = {k: x.numpy() for k, x in function.variables.items()}
        try:
            return function.owner(*args, **kwargs)
        finally:
            for name, values in originals.items():
                variable = function.variables[name]
                if variable.numpy().tobytes() != values.tobytes():
                    variable.assign(values)


def _is_narrow(x: PyTree) -> bool:
    return is_array(x) and is_float(x.dtype) and x.dtype.itemsize < 8


def _widened(x: PyTree) -> PyTree:
    return x.astype(np.float64) if _is_narrow(x) else x


def _tensor(leaf: PyTree) -> PyTree:
    return tf.constant(np.asarray(leaf)) if is_array(leaf) else leaf


def _floats(tree: PyTree) -> list[tf.Tensor]:
    leaves = tf.nest.flatten(tree, expand_composites=True)
    return [x for x in leaves if isinstance(x, tf.Tensor) and x.dtype.is_floating]


def side(model: Model, reference: object, call: Call) -> TensorFlowSide:
    """Returns the side of a function: the one that the model was made of, as it is now."""
    source = cast(TensorFlowSource, model.source)
    mode: dict[str, Any] = {"training": source.training} if source.function.moded else {}
    original = source.function.owner if reference is None else reference
    if isinstance(original, tf.compat.v1.GraphDef):
        fresh = from_tensorflow(original)
    elif callable(original) or hasattr(original, "signatures"):
        fresh = from_tensorflow(original, *call.args, **mode, **call.kwargs)
        fresh = fresh.train() if source.training else fresh
    else:  # a graph
        fresh = Model(*values_of(source.function), source)
    return TensorFlowSide(fresh, call)
