"""Keras models, tf.functions and restored signatures as functions to trace."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    import keras
    from tensorflow.types.experimental import ConcreteFunction

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
    holds: object = None  # a restored model, whose tables go with it
    call: inspect.Signature | None = None  # of a Keras model, which has its own words
    usage: str = ""  # how it is called

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
        self._check(args, {k: v for k, v in kwargs.items() if k != "training"})
        usage = self.usage or f"call it as {self.name}{self.signature}"
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
                    do=usage,
                ) from error
            raise ForwardFailed(
                f"{self.name} raises {type(error).__name__} while TensorFlow traces it",
                why=message[-400:],
                do=self.usage or "give arguments of the shapes and dtypes that it takes",
            ) from error

    def _check(self, args: tuple, kwargs: Mapping[str, PyTree]) -> None:
        """Raises WrongArguments unless a Keras model takes so many arguments by these names."""
        if self.call is None:
            return
        try:
            bound = self.call.bind(*args, **kwargs).arguments
        except TypeError as error:
            why = str(error)
        else:
            if not isinstance(bound.get("training"), tf.TensorSpec):
                return
            why = f"{len(args)} arguments are given, and the second one is `training`"
        raise WrongArguments(
            f"{self.name} does not take these arguments", why=why, do=self.usage
        ) from None

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
    function.call, function.usage = inspect.signature(model.call), _usage(model)
    paths = {id(v.value.handle): v.path for v in model.variables}
    function.add_variables([v.value for v in model.variables], lambda v: paths[id(v.handle)])
    variables = {function.names[id(v.value.handle)]: v for v in model.variables}
    function.frozen = {name for name, v in variables.items() if not v.trainable}
    function.seeds = [n for n, v in variables.items() if v.path.endswith("seed_generator_state")]
    return function


def _usage(model: keras.Model) -> str:
    """Returns how a Keras model is called: its inputs are one argument, which may be a list."""
    parameters = [*inspect.signature(model.call).parameters.values()]
    names = [p.name for p in parameters if p.default is p.empty and p.kind <= p.KEYWORD_ONLY]
    if len(names) > 1:
        return f"call it as model({', '.join(names)})"
    try:
        inputs = model.input
    except (AttributeError, ValueError):  # it was not made of symbols
        inputs = None
    if isinstance(inputs, (list, tuple, dict)):
        return f"pass its inputs as one {type(inputs).__name__}: model({_written(inputs)})"
    (name,) = names or ["inputs"]
    return f"call it as model({name}), with several in one list or dict, as its own code takes them"


def _written(inputs: PyTree) -> str:
    """Writes the inputs of a Keras model as code."""
    if isinstance(inputs, dict):
        return "{" + ", ".join(f"{k!r}: {_written(x)}" for k, x in inputs.items()) + "}"
    if isinstance(inputs, (list, tuple)):
        return "[" + ", ".join(map(_written, inputs)) + "]"
    return inputs.name


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
    for concrete in restored_calls(source):
        function.add_variables(_variables(concrete), plain_name)
    return function


def restored_calls(source: object) -> Sequence[ConcreteFunction]:
    """Returns the traced functions of a restored one, or of a restored object that is called."""
    call = getattr(source, "__call__", None)  # noqa: B004
    return getattr(source, "concrete_functions", getattr(call, "concrete_functions", ()))


def _variables(concrete: ConcreteFunction) -> Sequence[tf.Variable]:
    """Returns the variables of a traced function, which holds them only weakly.

    Raises:
      WrongArguments: they are gone.
    """
    try:
        return concrete.variables
    except AssertionError as error:
        raise WrongArguments(
            "the variables of the function are gone",
            why="a function holds none of its variables, and nothing holds its model any more",
            do="keep the model: restored = tf.saved_model.load(folder); "
            "anyjax.from_tensorflow(restored.function)",
        ) from error


def of_concrete(concrete: Any) -> Function:
    """Makes a function of one that is traced: a signature of a SavedModel."""
    args, kwargs = concrete.structured_input_signature
    kinds = inspect.Parameter
    parameters = [kinds(x.name or f"x{i}", kinds.POSITIONAL_OR_KEYWORD) for i, x in enumerate(args)]
    parameters += [kinds(name, kinds.KEYWORD_ONLY) for name in kwargs]
    name = bytes(concrete.name).decode() if isinstance(concrete.name, bytes) else concrete.name
    name = name.removeprefix("__inference_").rstrip("0123456789_")
    function = Function(lambda *_: concrete, name, inspect.Signature(parameters), concrete)
    function.add_variables(_variables(concrete), plain_name)
    return function


def _get(function: Any) -> Callable[[tuple, Mapping[str, Any]], Any]:
    return lambda args, kwargs: function.get_concrete_function(*args, **kwargs)
