"""A TensorFlow function as the source of a Model."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf

from anyjax import trees
from anyjax.calls.taps import Readings, Tap
from anyjax.calls.written_attention import evaluated
from anyjax.dtypes import fitting
from anyjax.errors import Unsupported, WrongArguments
from anyjax.model import Model
from anyjax.numerics.conditions import enforced
from anyjax.numerics.wide_integers import Checks
from anyjax.source import SourceBase, SourceCache
from anyjax.stablehlo.core.static_values import as_jax
from anyjax.tensorflow import initialisers, savedmodel
from anyjax.tensorflow.engine import frozen, functions, layers
from anyjax.tensorflow.engine.concrete import Concrete
from anyjax.tensorflow.engine.evaluate import Run
from anyjax.tensorflow.engine.functions import Function
from anyjax.tensorflow.state.variables import Handle
from anyjax.typing import PyTree

ATTENDING = {"BatchMatMulV2", "Einsum", "XlaCallModule"}  # what attention is not written without


@dataclass(frozen=True, eq=False)
class TensorFlowSource(SourceBase):
    """Calls a TensorFlow function with JAX arrays for variables; hashable by function and mode."""

    function: Function
    training: bool = False
    framework = "tensorflow"
    unpicklable = "TensorFlow's graphs cannot be pickled"

    def __eq__(self, other):
        return (
            isinstance(other, TensorFlowSource)
            and self.function is other.function
            and (self.training, self.taps) == (other.training, other.taps)
        )

    def __hash__(self):
        return hash((id(self.function), self.training))

    @property
    def name(self) -> str:
        """The class of a model, or the name of a function."""
        return self.function.name

    @property
    def module(self) -> Any:
        return self.function.owner

    @property
    def signature(self) -> inspect.Signature:
        return self.function.signature

    def in_mode(self, training: bool) -> TensorFlowSource:
        """Returns the same function with ``training`` set.

        Raises:
          Unsupported: it does not take ``training``.
        """
        if training and not self.function.moded:
            raise Unsupported(
                f"{self.name} has no training mode",
                why="the function does not take an argument `training`",
                do="convert a Keras model, or a function that takes it",
            )
        cache = self.cache.variant(self.training, training)
        return replace(self, training=training, cache=cache)

    def tapped(self, tap: Tap) -> TensorFlowSource:
        """Returns the same function with a tap on its layers and nodes."""
        return replace(self, taps=(*self.taps, tap), cache=SourceCache())

    def as_array(self, leaf: object) -> Any:
        """Returns an input leaf as JAX takes it."""
        if isinstance(leaf, (tf.Tensor, tf.Variable)):
            leaf = leaf.numpy()
            leaf = np.asarray(leaf, object) if isinstance(leaf, bytes) else leaf
        if isinstance(leaf, (np.ndarray, np.generic)) and leaf.dtype.kind in "SUO":
            return trees.Constant(np.asarray(leaf, object))  # text, which JAX cannot trace
        return fitting(np.asarray(leaf)) if isinstance(leaf, (np.ndarray, np.generic)) else leaf

    def __call__(self, params, state, args, kwargs, rng=None) -> tuple[Any, trees.Written]:
        """Evaluates the graph; returns its outputs and the variables that it assigned."""
        self._check(params, state)
        args, kwargs = self._arguments(args, kwargs)
        concrete = self.function.concrete(args, kwargs)
        inputs = concrete.arrange(args, kwargs)
        seeds = self._seeds(state, rng)
        values = {**params, **state, **seeds}
        is_static = lambda v: isinstance(v, np.ndarray) and trees.is_setting(v)
        variables = {Handle(k): v if is_static(v) else jnp.asarray(v) for k, v in values.items()}
        readings = Readings(self.taps) if self.taps else None
        if readings is not None:
            paths = layers.paths(concrete.library, concrete.graph)
            for tap in self.taps:
                tap.check_paths(paths)
        run = self.start(concrete.library, variables, rng, readings)
        unconverted = [*concrete.tensors(args, kwargs), *concrete.captured]
        origins = self._origins(args, kwargs, unconverted, params)
        values_of = lambda: run.graph(concrete.graph, [*inputs, *concrete.captured], origins)
        written_of = lambda: {h.name: run.variables[h] for h in run.written if h.name not in seeds}

        def evaluate() -> tuple[list[Any], dict[str, Any], list[jax.Array]]:
            run.checks = Checks()
            return [jnp.asarray(as_jax(x)) for x in values_of()], written_of(), [*run.checks]

        nodes = [x for f in concrete.library.protos.values() for x in f.node_def]
        attends = readings is None and ATTENDING & {x.op for x in (*concrete.graph.nodes, *nodes)}
        flat, written, checks = evaluated(evaluate, inputs) if attends else evaluate()
        out, holds = enforced(concrete.pack(flat), checks)
        out = out if readings is None else readings.beside(out)
        return out, trees.Written(written, set(written), holds, stepped=run.checks.stepped)

    def start(self, *arguments: Any) -> Run:
        """Returns the run of one call; see ``Run``."""
        return Run(*arguments)

    def concrete(self, args: tuple, kwargs: Mapping[str, PyTree]) -> Concrete:
        """Returns the function traced for these arguments."""
        return self.function.concrete(*self._arguments(args, kwargs))

    def _arguments(self, args, kwargs) -> tuple[tuple, dict[str, PyTree]]:
        """Returns arrays in the place of tensors, and the mode."""
        args, kwargs = jax.tree.map(self.as_array, (args, kwargs))
        return args, {"training": self.training, **kwargs} if self.function.moded else kwargs

    def _origins(self, args, kwargs, inputs, params) -> list[frozenset[str]]:
        """Returns the names of the graph's inputs in errors."""
        names = trees.names(args, kwargs, self.positional)
        leaf_names = {id(x): n for x, n in zip(jax.tree.leaves((args, kwargs)), names)}
        variable_name = lambda name: f"params[{name!r}]" if name in params else trees.STATE
        name_of = lambda x: (
            variable_name(x.name) if isinstance(x, Handle) else leaf_names.get(id(x))
        )
        return [frozenset(filter(None, [name_of(x)])) for x in inputs]

    def _seeds(self, state, rng) -> dict[str, jax.Array]:
        """Draws the seeds of Keras's generators from a key; they are not returned as state then."""
        if rng is None:
            return {}
        high = np.iinfo(np.int32).max
        keys = {n: jax.random.fold_in(rng, i) for i, n in enumerate(self.function.seeds)}
        draw = lambda n: jax.random.randint(keys[n], state[n].shape, 0, high, state[n].dtype)
        return {n: draw(n) for n in keys}

    def _check(self, params, state) -> None:
        if twice := sorted({*params} & {*state}):
            raise WrongArguments(
                f"{twice[0]!r} is in params and in state",
                why="the forward pass wrote to it, and one of the two would be lost",
                do="move it: params = {**params, name: state.pop(name)}",
            )
        variables = self.function.variables
        names = {*params, *state}
        if wrong := sorted(names ^ set(variables)):
            what = "unknown" if wrong[0] in names else "missing"
            raise WrongArguments(
                f"{what} variable {wrong[0]!r}",
                why=f"{self.name} has {len(variables)} variables",
                do="pass params and state with the names of model.params and model.state",
            )

    def initial(self, params, state, rng, build=None) -> dict[str, jax.Array]:
        """Returns what the initialisers of a Keras model draw, by name.

        Raises:
          WrongArguments: there is a ``build``.
        """
        if build is not None:
            raise WrongArguments(
                f"build= for {self.name} from TensorFlow",
                why="a Keras model is built again from its own configuration",
                do="leave it out: model.init(rng)",
            )
        return initialisers.initial(self, {**params, **state}, rng)

    def write_back(self, params, state) -> Any:
        """Assigns params and state to TensorFlow's own variables; returns the converted object."""
        self._check(params, state)
        for name, array in {**params, **state}.items():
            self.function.variables[name].assign(np.asarray(array))
        return self.module


def from_tensorflow(
    source: Any,
    *args: Any,
    signature: str | None = None,
    inputs: Iterable[str] | str | None = None,
    outputs: Iterable[str] | Mapping[str, str] | str | None = None,
    weights: bool = True,
    **kwargs: Any,
) -> Model:
    """Converts a TensorFlow function or model to a pure JAX function plus a params pytree.

    Args:
      source: a Keras model or layer, a ``tf.function``, a Python function of tensors, a
        ``tf.Module`` with ``__call__``, a restored SavedModel, or the folder or file of one
        (SavedModel, ``.keras``), a ``GraphDef`` or the file of one (``.pb``, ``.pbtxt``).
      *args: example arguments: arrays, tensors or ``tf.TensorSpec``; needed if the variables
        of a function are only known after it is traced.
      **kwargs: the same, by name.
      signature: which signature of a SavedModel.
      inputs: of a GraphDef, the names of the nodes that are arguments; its placeholders if None.
      outputs: the name of the tensor that is computed, or a list or a dict of names; if None,
        the nodes whose outputs no other node takes.
      weights: whether the floating-point constants of a GraphDef with more than four elements
        are params.

    Returns:
      A Model: ``params`` holds the trainable variables, ``state`` the others, under their own
      names.

    Raises:
      Unsupported: ``source`` is none of these.
      BadCheckpoint: a folder or file that cannot be read.
      WrongArguments: there is no such signature.

    Example:
      >>> import numpy as np, tensorflow as tf
      >>> w = tf.Variable([2.0, 3.0], name="w")
      >>> model = anyjax.from_tensorflow(lambda x: w * x, np.ones(2, np.float32))
      >>> model.params["w"].tolist(), model(np.ones(2, np.float32)).tolist()
      ([2.0, 3.0], [2.0, 3.0])
    """
    if isinstance(source, (str, os.PathLike)):
        source = savedmodel.source_of(source, signature)
    if isinstance(source, tf.compat.v1.GraphDef):
        source = frozen.of_graph_def(source, inputs, outputs, weights)
    elif inputs is not None or outputs is not None:
        raise WrongArguments(
            "inputs= and outputs= are for GraphDefs",
            why=f"the source is a {type(source).__name__}, which has arguments and results",
            do="pass the graph: function.graph.as_graph_def()",
        )
    if isinstance(source, Function):
        function = source
    else:
        function = function_of(source, signature, args, kwargs)
        function.holds = source
    function.record_wide_dtypes(args, kwargs)
    if args or kwargs:
        traced = function.traced_for(*function.specs(args, kwargs)[0])
        function.add_variables(traced.variables, functions.plain_name)
    return Model(*values_of(function), TensorFlowSource(function))


def values_of(function: Function) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    """Returns (params, state): the values of trainable variables, and of the others."""
    params: dict[str, jax.Array] = {}
    state: dict[str, jax.Array] = {}
    for name, variable in function.variables.items():
        is_param = variable.trainable and name not in function.frozen
        (params if is_param else state)[name] = jnp.asarray(fitting(variable.numpy()))
    return params, state


def function_of(
    source: Any, signature: str | None, args: tuple = (), kwargs: Mapping[str, Any] | None = None
) -> Function:
    """Makes the function of a source that is to be traced."""
    if hasattr(source, "signatures"):
        source = savedmodel.choose(source, signature)
    if hasattr(source, "structured_input_signature"):
        return functions.of_concrete(source)
    if hasattr(source, "trainable_variables") and hasattr(source, "call"):
        return functions.of_keras(source, args, kwargs)
    if callable(source) and not isinstance(source, type):
        return functions.of_callable(source)
    functions_of = (
        k for k in dir(source) if hasattr(getattr(source, k, None), "get_concrete_function")
    )
    name = next(functions_of, "function") if isinstance(source, tf.Module) else None
    raise Unsupported(
        f"from_tensorflow takes a model, a function or a folder, not {source!r}",
        why="it cannot be called",
        do=f"pass one of its functions: anyjax.from_tensorflow(module.{name})"
        if name
        else "pass a Keras model, a tf.function or the folder of a SavedModel",
    )
