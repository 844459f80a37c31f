"""A function that TensorFlow has traced: its graph, inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf

from anyjax import trees
from anyjax.dtypes import canonical
from anyjax.errors import Unsupported, WrongArguments
from anyjax.tensorflow.core import text
from anyjax.tensorflow.core.nodes import Graph
from anyjax.tensorflow.engine import diagnostics
from anyjax.tensorflow.engine.gradients import reader
from anyjax.tensorflow.engine.graph import Library, of_graph
from anyjax.tensorflow.state.variables import Handle
from anyjax.typing import PyTree

if TYPE_CHECKING:
    from jax.tree_util import PyTreeDef


@dataclass(eq=False)
class Concrete:
    """A graph whose inputs are the call's tensors, then the captured values."""

    graph: Graph
    library: Library
    specs: list[tf.TensorSpec]  # of the call's tensors
    captured: list[Any]  # a Handle, a numpy array or a table
    outputs: Any  # the structure, with a spec for every tensor
    type: Any  # TensorFlow's FunctionType, or a signature
    live: Any = None  # TensorFlow's own graph, for the lines of Python
    variables: tuple = ()  # what TensorFlow's own functions list; these are known already

    def arrange(self, args: tuple, kwargs: Mapping[str, PyTree]) -> list[Any]:
        """Returns the call's tensors in the order of the graph's inputs, as JAX arrays.

        Raises:
          WrongArguments: they are not what the function was traced for.
        """
        tensors = self.tensors(args, kwargs)
        for i, spec in enumerate(self.specs):
            if spec.dtype == tf.string:
                raise text.refused(spec.name, diagnostics.consumer(self.graph, self.library, i))
        return [self._checked(x, spec) for x, spec in zip(tensors, self.specs)]

    def tensors(self, args: tuple, kwargs: Mapping[str, PyTree]) -> list[Any]:
        """Returns the call's tensors in the order of the graph's inputs.

        Raises:
          WrongArguments: there are more or fewer of them.
        """
        if args and not any(p.kind != p.KEYWORD_ONLY for p in self.type.parameters.values()):
            if len(args) > len(self.type.parameters):
                raise self._wrong(f"{len(args)} arguments are given")
            args, kwargs = (), {**dict(zip(self.type.parameters, args)), **kwargs}
        try:
            bound = self.type.bind_partial(*args, **kwargs).arguments
        except TypeError as error:
            raise self._wrong(str(error)) from None
        leaves = tf.nest.flatten([bound[name] for name in self.type.parameters if name in bound])
        numbers = [x for x in leaves if trees.is_array(x) or isinstance(x, trees.Constant)]
        tensors = numbers if len(numbers) == len(self.specs) else leaves
        if len(tensors) != len(self.specs):
            raise self._wrong(f"{len(numbers)} arrays are given, {len(self.specs)} wanted")
        return tensors

    def _checked(self, value: Any, spec: tf.TensorSpec) -> Any:
        is_text = isinstance(value, trees.Constant)
        if is_text:
            value = value.array
        elif not trees.is_array(value):
            try:
                value = np.asarray(value, spec.dtype.as_numpy_dtype)
            except (TypeError, ValueError):
                raise self._wrong(f"{spec.name} is {value!r}") from None
        fixed = [n if isinstance(n, int) else None for n in value.shape]
        if not spec.shape.is_compatible_with(fixed):
            raise self._wrong(f"{spec.name} has the shape {tuple(value.shape)}, not {spec.shape}")
        if canonical(value.dtype) != canonical(spec.dtype.as_numpy_dtype):
            raise self._wrong(f"{spec.name} has the dtype {value.dtype}, not {spec.dtype.name}")
        return value if is_text or isinstance(value, jax.Array) else jnp.asarray(value)

    def _wrong(self, what: str) -> WrongArguments:
        parameters = ", ".join(f"{x.name}: {x.dtype.name}{_sizes(x.shape)}" for x in self.specs)
        return WrongArguments(
            what, why=f"the function takes ({parameters})", do="give arguments of these shapes"
        )

    def pack(self, flat: Sequence[object]) -> Any:
        """Packs the outputs in their structure."""
        leaves = tf.nest.flatten(self.outputs, expand_composites=True)
        values = iter(flat)
        filled = [next(values) if isinstance(x, tf.TensorSpec | tf.Tensor) else x for x in leaves]
        return pack_like(self.outputs, filled)


def concrete_of(function: Any, names: Mapping[int, str], gradients: bool = True) -> Concrete:
    """Reads a ``ConcreteFunction``; ``names`` has the names of variables by the ids of their
    handles, ``gradients`` tells whether custom ones count.
    """
    proto = function.graph.as_graph_def()
    captures = list(function.captured_inputs)
    variables = {id(v.handle): v for v in function.variables}
    inputs = [x.name for x in function.inputs]
    ends = [op.name for op in function.graph.control_outputs]
    captured_of = lambda tensor: _captured(tensor, variables, names)
    read = partial(reader, captured_of) if gradients else None
    extra = read(function.graph, tuple(x.op.name for x in function.inputs)) if read else None
    # A gradient that TensorFlow took appends the values that it needs to the outputs.
    output_count = len(_tensors(function.structured_outputs))
    graph = of_graph(proto, inputs, [x.name for x in function.outputs[:output_count]], ends, extra)
    count = len(inputs) - len(captures)
    return Concrete(
        graph=graph,
        library=Library(proto.library, function.graph, read),
        specs=[tf.TensorSpec(x.shape, x.dtype, x.op.name) for x in function.inputs[:count]],
        captured=[captured_of(x) for x in captures],
        outputs=function.structured_outputs,
        type=function.function_type,
        live=function.graph,
    )


def _tensors(structure: PyTreeDef) -> list[Any]:
    leaves = tf.nest.flatten(structure, expand_composites=True)
    return [x for x in leaves if isinstance(x, tf.TensorSpec | tf.Tensor)]


def _captured(tensor: tf.Tensor, variables: Mapping[int, Any], names: Mapping[int, str]) -> Any:
    if id(tensor) in names:
        return Handle(names[id(tensor)])
    if (variable := variables.get(id(tensor))) is not None:
        raise WrongArguments(
            f"the function uses the variable {variable.name!r}, which the model does not have",
            why="it was not used with the example arguments",
            do="convert with example arguments that use every variable",
        )
    if tensor.dtype in (tf.resource, tf.variant):
        return tensor  # a table
    if not hasattr(tensor, "numpy"):
        raise Unsupported(
            f"the function captured {tensor.name!r}, a tensor of another graph",
            why="its value exists only while that graph is built",
            do="pass it as an argument",
        )
    value = tensor.numpy()
    return value if isinstance(value, np.ndarray) else np.asarray(value)


def _sizes(shape: tf.TensorShape) -> str:
    return str(list(shape)) if shape.rank is not None else "[...]"


def pack_like(structure: PyTreeDef, flat: list[Any]) -> Any:
    """Packs ``flat`` like ``structure``; TensorFlow's ragged and sparse tensors can hold only its
    own tensors, so ``Ragged`` and ``Sparse`` replace them.
    """
    values = iter(flat)
    packed: list[Any] = []
    for leaf in tf.nest.flatten(structure):
        components = [next(values) for _ in tf.nest.flatten(leaf, expand_composites=True)]
        if isinstance(leaf, tf.RaggedTensor | tf.RaggedTensorSpec):
            packed.append(Ragged(components[0], tuple(components[1:])))
        elif isinstance(leaf, tf.SparseTensor | tf.SparseTensorSpec):
            packed.append(Sparse(*components))
        else:
            packed.append(tf.nest.pack_sequence_as(leaf, components, expand_composites=True))
    return tf.nest.pack_sequence_as(structure, packed)


class Ragged(NamedTuple):
    """A ragged tensor that a function returns."""

    flat_values: jax.Array
    nested_row_splits: tuple[jax.Array, ...]


class Sparse(NamedTuple):
    """A sparse tensor that a function returns."""

    indices: jax.Array
    values: jax.Array
    dense_shape: jax.Array
