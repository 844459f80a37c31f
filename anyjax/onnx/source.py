"""An ONNX graph as the source of a Model."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx

from anyjax import trees
from anyjax.calls.taps import Readings, Tap
from anyjax.calls.written_attention import evaluated
from anyjax.dtypes import fitting
from anyjax.errors import DataDependent, Unsupported, WrongArguments
from anyjax.model import Model
from anyjax.numerics.conditions import enforced
from anyjax.onnx.core.nodes import Graph
from anyjax.onnx.engine import files, missing, signature
from anyjax.onnx.engine.evaluate import Run
from anyjax.onnx.engine.graph import Reader, needed
from anyjax.onnx.engine.weights import collect, written
from anyjax.source import SourceBase, SourceCache
from anyjax.stablehlo.core.static_values import as_jax
from anyjax.typing import PyTree

VALUES = (np.ndarray, np.generic, jax.Array)
INT32 = onnx.TensorProto.INT32


@dataclass(frozen=True, eq=False)
class OnnxSource(SourceBase):
    """Evaluates a graph; hashable by the graph."""

    graph: Graph
    inputs: tuple[signature.Input, ...]
    signature: inspect.Signature
    module: onnx.ModelProto
    framework = "onnx"
    training = False
    unpicklable = "its graph has protobufs, which may be larger than they allow"

    def __eq__(self, other):
        return (
            isinstance(other, OnnxSource) and self.graph is other.graph and self.taps == other.taps
        )

    def __hash__(self):
        return id(self.graph)

    @property
    def name(self) -> str:
        return self.graph.name or "graph"

    def in_mode(self, training: bool) -> OnnxSource:
        """Returns the same graph.

        Raises:
          Unsupported: a graph has no training mode.
        """
        if training:
            raise Unsupported(
                f"{self.name} has no training mode",
                why="an ONNX graph is one program, exported for inference or for training",
                do="export the model in training mode, or train it as it is: model.params",
            )
        return self

    def tapped(self, tap: Tap) -> OnnxSource:
        """Returns the same graph with a tap on the values of these names."""
        return replace(self, taps=(*self.taps, tap), cache=SourceCache())

    def __call__(self, params, state, args, kwargs, rng=None) -> tuple[Any, trees.Written]:
        """Evaluates the graph; it writes no state."""
        self._check(params, state)
        values = signature.arrange(self.signature, self.inputs, args, kwargs)
        readings = Readings(self.taps) if self.taps else None
        if readings is not None:
            paths = [name for _, node in self.graph.each() for name in node.outputs if name]
            for tap in self.taps:
                tap.check_paths(paths)
        weights = {k: jnp.asarray(x) for k, x in {**params, **state}.items()}
        origins = [frozenset([x.argument]) for x in self.inputs]
        written = trees.Written({}, set())
        arrays_of = lambda flat: jax.tree.map(lambda x: jnp.asarray(as_jax(x)), flat)

        def evaluate() -> tuple[list[Any], list[jax.Array]]:
            run = Run(weights, rng, readings)
            run.narrow |= {x.name for x in self.inputs if x.element == INT32}
            arrays = arrays_of([*run.graph(self.graph, values, origins)])
            written.stepped |= run.checks.stepped
            return arrays, [*run.checks]

        operators = {x.op.name for _, x in self.graph.each()}
        attends = readings is None and operators >= {"Softmax", "MatMul"}
        arrays, checks = evaluated(evaluate, values) if attends else evaluate()
        out = arrays[0] if len(arrays) == 1 else dict(zip(self.graph.outputs, arrays))
        out, written.holds = enforced(out, checks)
        return out if readings is None else readings.beside(out), written

    def _check(self, params, state) -> None:
        names = {key for graph in _graphs(self.graph) for key in graph.weights.values()}
        if wrong := sorted({*params, *state} ^ names):
            what = "unknown" if wrong[0] in {*params, *state} else "missing"
            raise WrongArguments(
                f"{what} weight {wrong[0]!r}",
                why=f"{self.name} has {len(names)} weights",
                do="pass params and state with the names of model.params and model.state",
            )

    def write_back(self, params, state) -> onnx.ModelProto:
        self._check(params, state)
        return written(self.module, {**params, **state})


def _graphs(graph: Graph) -> Iterable[Graph]:
    yield graph
    for node in graph.nodes:
        for inner in node.graphs():
            yield from _graphs(inner)


def from_onnx(
    source: onnx.ModelProto | bytes | str | os.PathLike[str],
    *example_args: Any,
    outputs: Iterable[str] | None = None,
    weights: bool | str = True,
) -> Model:
    """Converts an ONNX model to a pure JAX function plus a params pytree.

    Args:
      source: the path of a file (with its external data beside it), its bytes, or a
        ``ModelProto``. Opsets 7 to the newest of the package ``onnx``; older ones are converted.
      *example_args: arrays for the inputs, with which the model is tried: a shape or an operator
        that cannot work is an error here.
      outputs: the names of the values that are computed, also of ones inside of the graph; the
        graph's outputs if None.
      weights: whether floating-point tensors are params, or a regular expression for the names of
        those that are; the others are state.

    Returns:
      A Model: ``params`` holds the graph's floating-point tensors under their own names, ``state``
      its other large ones, statistics and scales of quantized values. It is called with arrays by
      position or by the names of the inputs, and returns an array, or a dict of arrays by the names
      of the outputs if there are several.

    Raises:
      BadCheckpoint: a file is damaged, or its external data is missing or outside of its folder.
      MissingOps: operators have no lowering; all of them are named, with their nodes.
      Unsupported: operators work on strings, or the opset is newer than the package ``onnx``.
      WrongArguments: there is no such output, or the examples do not fit.

    Source: https://onnx.ai/onnx/repo-docs/IR.html

    Example:
      >>> import jax, numpy as np
      >>> from onnx import parser
      >>> head = '<ir_version: 8, opset_import: ["": 18]>'
      >>> square = parser.parse_model(head + "m (float[n] x) => (float[n] y) {y = Mul(x, x)}")
      >>> model = anyjax.from_onnx(square)
      >>> jax.grad(lambda x: model.apply(model.params, x).sum())(np.float32([1, 2])).tolist()
      [2.0, 4.0]
    """
    proto = files.read(source)
    reader = Reader({x.domain: x.version for x in proto.opset_import}, proto.functions)
    graph = reader.graph(proto.graph)
    if outputs is not None:
        graph = needed(graph, [outputs] if isinstance(outputs, str) else outputs)
    missing.refuse(graph)
    inputs = signature.read(proto.graph, graph)
    params, state = collect(graph, weights)
    as_arrays = lambda values: {k: jnp.asarray(fitting(x)) for k, x in values.items()}
    model = Model(
        as_arrays(params), as_arrays(state), OnnxSource(graph, inputs, signature.of(inputs), proto)
    )
    if example_args:
        _trace(model, example_args)
    return model


def _trace(model: Model, examples: tuple[PyTree, ...]) -> None:
    """Traces a model for examples, those that decide shapes by their values, as in a call of it."""
    names, fixed = model.source.positional, set[str]()
    while True:
        places = [i for i, name in enumerate(names[: len(examples)]) if name in fixed]
        traced = [x for i, x in enumerate(examples) if i not in places]

        def call(*arrays: jax.Array, places: list[int] = places) -> Any:
            remaining = iter(arrays)
            pairs = enumerate(examples)
            args = [np.asarray(x) if i in places else next(remaining) for i, x in pairs]
            return model.apply(model.params, *args, rng=jax.random.key(0))

        try:
            jax.eval_shape(call, *traced)
            return
        except DataDependent as error:
            values = {n: x for n, x in zip(names, examples) if isinstance(x, VALUES)}
            new = {*error.arguments} - fixed
            if not new or not all(n in values and values[n].dtype.kind in "iub" for n in new):
                raise
            fixed |= new
