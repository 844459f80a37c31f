"""Keras models, tf.functions and restored signatures as functions to trace."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import tensorflow as tf

from anyjax import trees
from anyjax.dtypes import canonical
from anyjax.errors import AnyjaxError, ForwardFailed, WrongArguments
from anyjax.tensorflow.core import dtypes
from anyjax.tensorflow.engine.concrete import Concrete, concrete_of
from anyjax.typing import PyTree

if TYPE_CHECKING:
    from anyjax.model import Model

BINDING = "Binding inputs to tf.function failed due to "
UNBOUND = (BINDING, "Could not find matching concrete function")


@dataclass(eq=False)
class Function:
    """A function of tensors, traced by TensorFlow once for every kind of arguments.

    ``find(args, kwargs)`` returns TensorFlow's ConcreteFunction for specs instead of arrays;
    ``moded`` tells whether it takes ``training``.
    """

    find: Callable[[tuple, Mapping[str, Any]], Any]
    name: str
    signature: inspect.Signature
    owner: Any
    moded: bool = False
    names: dict[int, str] = field(default_factory=dict)  # id of a variable's handle -> its name
    variables: dict[str, Any] = field(default_factory=dict)
    frozen: set[str] = field(default_factory=set)  # variables that the source does not train
    seeds: list[str] = field(default_factory=list)  # variables that seed random numbers
    wide: dict[int, tf.DType] = field(default_factory=dict)  # 64-bit dtypes of the example
    traced: dict[Any, Concrete] = field(default_factory=dict)

    def concrete(self, args: tuple, kwargs: Mapping[str, PyTree]) -> Concrete:
        """Returns the function traced for arguments of these shapes, dtypes and Python values."""
        (arg_specs, kwarg_specs), key = self.specs(args, kwargs)
        if key not in self.traced:
            traced = self.traced_for(arg_specs, kwarg_specs)
            is_read = isinstance(traced, Concrete)
            self.traced[key] = traced if is_read else concrete_of(traced, self.names)
        return self.traced[key]

    def traced_for(self, args: tuple, kwargs: Mapping[str, PyTree]) -> Any:
        """Calls ``find``, and raises its errors as ours.

        Raises:
          WrongArguments: the function does not take these arguments.
          ForwardFailed: it raises itself.
        """
        try:
            return self.find(args, kwargs)
        except (TypeError, ValueError) as error:
            if isinstance(error, AnyjaxError):
                raise
            message = " ".join(str(error).split())
            if any(x in message for x in UNBOUND):
                raise WrongArguments(
                    f"{self.name} does not take these arguments",
                    why=message.partition(BINDING)[2][:400] or message[:400],
                    do=f"call it as {self.name}{self.signature}",
                ) from error
            raise ForwardFailed(
                f"{self.name} raises {type(error).__name__} while TensorFlow traces it",
                why=message[-400:],
                do="give arguments of the shapes and dtypes that it takes",
            ) from error

    def specs(self, args: tuple, kwargs: Mapping[str, PyTree]) -> tuple[Any, Any]:
        """Returns the arguments with specs instead of arrays, and a key of them."""
        leaves, structure = jax.tree.flatten((args, kwargs), is_leaf=lambda x: x is None)
        specs = [self._spec(i, x) for i, x in enumerate(leaves)]
        return jax.tree.unflatten(structure, specs), (structure, tuple(repr(x) for x in specs))

    def add_variables(self, variables: Iterable[Any], name_of: Callable[[Any], str]) -> None:
        """Adds variables, each under a unique name."""
        for variable in variables:
            if id(variable.handle) in self.names:
                continue
            name = base = name_of(variable)
            count = 0
            while name in self.variables:
                count += 1
                name = f"{base}_{count}"
            self.names[id(variable.handle)] = name
            self.variables[name] = variable

    def record_wide_dtypes(self, args: tuple, kwargs: Mapping[str, PyTree]) -> None:
        """Records which arguments of an example have 64 bits."""
        leaves = jax.tree.leaves((args, kwargs), is_leaf=lambda x: x is None)
        for i, leaf in enumerate(leaves):
            if trees.is_array(leaf) and (dtype := tf.as_dtype(leaf.dtype)).size == 8:
                self.wide[i] = dtype

    def _spec(self, i: int, leaf: Any) -> Any:
        """Returns the spec of an array; Python values stay."""
        if isinstance(leaf, trees.Constant):
            leaf = leaf.array
        if not trees.is_array(leaf) or isinstance(leaf, tf.TensorSpec):
            return leaf
        if tf.is_tensor(leaf):
            leaf = _plain_array(leaf)
        dtype = dtypes.of_array(leaf.dtype)
        wide = self.wide.get(i)
        if wide is not None and canonical(wide.as_numpy_dtype) == canonical(leaf.dtype):
            dtype = wide
        fixed = [n if isinstance(n, int) else None for n in leaf.shape]
        return tf.TensorSpec(fixed, dtype)


def _plain_array(tensor: object) -> np.ndarray:
    """Returns a tensor's values.

    Raises:
      WrongArguments: it is a ragged or a sparse one, or symbolic.
    """
    if isinstance(tensor, (tf.Tensor, tf.Variable)) and hasattr(tensor, "numpy"):
        return tensor.numpy()
    raise WrongArguments(
        f"an argument is a {type(tensor).__name__}",
        why="JAX has no array of that kind",
        do="pass its parts as arrays, and make it of them inside of the function",
    )


def plain_name(variable: Any) -> str:
    """Returns a variable's own name."""
    return variable.name.partition(":")[0]


def of_keras(model: Any, args: tuple = (), kwargs: Mapping[str, Any] | None = None) -> Function:
    """Makes a function of a Keras model or layer; builds it for the example arguments if needed.

    Keras passes ``training`` to inner layers even if the outer one does not take it.
    """
    if not model.built and (args or kwargs):
        _build(model, args, kwargs or {})
    run = tf.function(lambda *args, **kwargs: model(*args, **kwargs), autograph=False)
    signature = inspect.signature(model.call)
    if "inputs" not in signature.parameters and hasattr(model, "inputs"):
        signature = inspect.Signature(
            [inspect.Parameter("inputs", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
        )
    function = Function(_get(run), type(model).__name__, signature, model, moded=True)
    paths = {id(v.value.handle): v.path for v in model.variables}
    function.add_variables([v.value for v in model.variables], lambda v: paths[id(v.handle)])
    variables = {function.names[id(v.value.handle)]: v for v in model.variables}
    function.frozen = {name for name, v in variables.items() if not v.trainable}
    function.seeds = [n for n, v in variables.items() if v.path.endswith("seed_generator_state")]
    return function


def _build(model: Model, args: tuple, kwargs: Mapping[str, PyTree]) -> None:
    """Makes the variables as Keras does in a symbolic call, outside of any graph."""
    import keras

    def symbol(x):
        if not trees.is_array(x):
            return x
        return keras.KerasTensor(tuple(x.shape), tf.as_dtype(x.dtype).name)

    args, kwargs = jax.tree.map(symbol, (args, dict(kwargs)))
    model(*args, **kwargs)


def of_callable(source: Any) -> Function:
    """Makes a function of a tf.function, or of a Python function that can become one."""
    run = source if hasattr(source, "get_concrete_function") else tf.function(source)
    python = getattr(source, "python_function", source)
    try:
        signature = inspect.signature(python)
    except (TypeError, ValueError):
        signature = inspect.signature(lambda *args, **kwargs: None)
    name = getattr(python, "__name__", type(python).__name__)
    function = Function(_get(run), name, signature, source, "training" in signature.parameters)
    owner = getattr(python, "__self__", python)
    if isinstance(owner, tf.Module):
        function.add_variables(owner.variables, plain_name)
    if getattr(source, "input_signature", None) is not None:
        function.add_variables(source.get_concrete_function().variables, plain_name)
    restored = getattr(source, "__call__", source)  # noqa: B004  (an object's own function)
    for concrete in getattr(restored, "concrete_functions", ()):
        function.add_variables(concrete.variables, plain_name)
    return function


def of_concrete(concrete: Any) -> Function:
    """Makes a function of one that is traced: a signature of a SavedModel."""
    args, kwargs = concrete.structured_input_signature
    kinds = inspect.Parameter
    parameters = [kinds(x.name or f"x{i}", kinds.POSITIONAL_OR_KEYWORD) for i, x in enumerate(args)]
    parameters += [kinds(name, kinds.KEYWORD_ONLY) for name in kwargs]
    name = bytes(concrete.name).decode() if isinstance(concrete.name, bytes) else concrete.name
    name = name.removeprefix("__inference_").rstrip("0123456789_")
    function = Function(lambda *_: concrete, name, inspect.Signature(parameters), concrete)
    function.add_variables(concrete.variables, plain_name)
    return function


def _get(function: Any) -> Callable[[tuple, Mapping[str, Any]], Any]:
    return lambda args, kwargs: function.get_concrete_function(*args, **kwargs)
