"""From what users have (a Keras model, a tf.function, a restored signature) to traced functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import tensorflow as tf

from tojax import trees
from tojax.dtypes import canonical
from tojax.errors import ForwardFailed, TojaxError, WrongArguments
from tojax.tensorflow.core import dtypes
from tojax.tensorflow.engine.concrete import Concrete, concrete_of

BINDING = "Binding inputs to tf.function failed due to "
UNBOUND = (BINDING, "Could not find matching concrete function")


@dataclass(eq=False)
class Function:
    """A function of tensors, traced by TensorFlow once for every kind of arguments.

    ``find(args, kwargs)`` gives TensorFlow's ConcreteFunction for specs in the place of arrays;
    ``moded`` says whether it takes ``training``.
    """

    find: Callable[[tuple, Mapping[str, Any]], Any]
    name: str
    signature: inspect.Signature
    owner: Any
    moded: bool = False
    names: dict[int, str] = field(default_factory=dict)  # id of a variable's handle -> its name
    variables: dict[str, Any] = field(default_factory=dict)
    frozen: set[str] = field(default_factory=set)  # variables that the source does not train
    seeds: list[str] = field(default_factory=list)  # variables that seed what a call draws
    wide: dict[int, tf.DType] = field(default_factory=dict)  # 64-bit dtypes of the example
    traced: dict[Any, Concrete] = field(default_factory=dict)

    def concrete(self, args: tuple, kwargs: Mapping[str, Any]) -> Concrete:
        """The function traced for arguments of these shapes, dtypes and Python values."""
        (given, named), key = self.specs(args, kwargs)
        if key not in self.traced:
            found = self.traced_for(given, named)
            done = isinstance(found, Concrete)
            self.traced[key] = found if done else concrete_of(found, self.names)
        return self.traced[key]

    def traced_for(self, args: tuple, kwargs: Mapping[str, Any]) -> Any:
        """``find``, with its errors as ours.

        Raises:
          WrongArguments: the function does not take these arguments.
          ForwardFailed: it raises itself.
        """
        try:
            return self.find(args, kwargs)
        except (TypeError, ValueError) as error:
            if isinstance(error, TojaxError):
                raise
            said = " ".join(str(error).split())
            if any(x in said for x in UNBOUND):
                raise WrongArguments(
                    f"{self.name} does not take these arguments",
                    why=said.partition(BINDING)[2][:400] or said[:400],
                    do=f"call it as {self.name}{self.signature}",
                ) from error
            raise ForwardFailed(
                f"{self.name} raises {type(error).__name__} while TensorFlow traces it",
                why=said[-400:],
                do="give arguments of the shapes and dtypes that it takes",
            ) from error

    def specs(self, args: tuple, kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
        """The arguments with specs in the place of arrays, and what tells them from others."""
        leaves, structure = jax.tree.flatten((args, kwargs), is_leaf=lambda x: x is None)
        specs = [self._spec(i, x) for i, x in enumerate(leaves)]
        return jax.tree.unflatten(structure, specs), (structure, tuple(repr(x) for x in specs))

    def own(self, variables: Iterable[Any], name_of: Callable[[Any], str]) -> None:
        """Adds variables under names of their own."""
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

    def remember(self, args: tuple, kwargs: Mapping[str, Any]) -> None:
        """Notes which arguments of an example are wider than JAX's."""
        leaves = jax.tree.leaves((args, kwargs), is_leaf=lambda x: x is None)
        for i, leaf in enumerate(leaves):
            if trees.is_array(leaf) and (dtype := tf.as_dtype(leaf.dtype)).size == 8:
                self.wide[i] = dtype

    def _spec(self, i: int, leaf: Any) -> Any:
        """A spec in the place of an array; Python values stay."""
        if isinstance(leaf, trees.Constant):
            leaf = leaf.array
        if not trees.is_array(leaf) or isinstance(leaf, tf.TensorSpec):
            return leaf
        dtype = dtypes.of_array(leaf.dtype)
        wide = self.wide.get(i)
        if wide is not None and canonical(wide.as_numpy_dtype) == canonical(leaf.dtype):
            dtype = wide
        fixed = [n if isinstance(n, int) else None for n in leaf.shape]
        return tf.TensorSpec(fixed, dtype)


def plain_name(variable: Any) -> str:
    """A variable's own name."""
    return variable.name.partition(":")[0]


def of_keras(model: Any, args: tuple = (), kwargs: Mapping[str, Any] | None = None) -> Function:
    """A Keras model or layer; one that is not built yet is built for the example arguments.

    Keras passes ``training`` on to the layers inside of one that does not take it itself.
    """
    if not model.built and (args or kwargs):
        _build(model, args, kwargs or {})
    taken = inspect.signature(model.call).parameters
    run = tf.function(lambda *args, **kwargs: model(*args, **kwargs), autograph=False)
    signature = inspect.signature(model.call)
    if "inputs" not in taken and hasattr(model, "inputs"):
        signature = inspect.Signature(
            [inspect.Parameter("inputs", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
        )
    made = Function(_get(run), type(model).__name__, signature, model, moded=True)
    paths = {id(v.value.handle): v.path for v in model.variables}
    made.own([v.value for v in model.variables], lambda v: paths[id(v.handle)])
    of = {made.names[id(v.value.handle)]: v for v in model.variables}
    made.frozen = {name for name, v in of.items() if not v.trainable}
    made.seeds = [name for name, v in of.items() if v.path.endswith("seed_generator_state")]
    return made


def _build(model: Any, args: tuple, kwargs: Mapping[str, Any]) -> None:
    """Makes the variables as Keras does for a symbolic call, outside of any graph."""
    import keras

    def symbol(x):
        if not trees.is_array(x):
            return x
        return keras.KerasTensor(tuple(x.shape), tf.as_dtype(x.dtype).name)

    args, kwargs = jax.tree.map(symbol, (args, dict(kwargs)))
    model(*args, **kwargs)


def of_callable(function: Any) -> Function:
    """A tf.function, or a Python function that can become one."""
    run = function if hasattr(function, "get_concrete_function") else tf.function(function)
    python = getattr(function, "python_function", function)
    try:
        signature = inspect.signature(python)
    except (TypeError, ValueError):
        signature = inspect.signature(lambda *args, **kwargs: None)
    name = getattr(python, "__name__", type(python).__name__)
    made = Function(_get(run), name, signature, function, "training" in signature.parameters)
    owner = getattr(python, "__self__", python)
    if isinstance(owner, tf.Module):
        made.own(owner.variables, plain_name)
    if getattr(function, "input_signature", None) is not None:
        made.own(function.get_concrete_function().variables, plain_name)
    restored = getattr(function, "__call__", function)  # noqa: B004  (an object's own function)
    for concrete in getattr(restored, "concrete_functions", ()):
        made.own(concrete.variables, plain_name)
    return made


def of_concrete(function: Any) -> Function:
    """One traced function: a signature of a SavedModel."""
    args, kwargs = function.structured_input_signature
    kinds = inspect.Parameter
    parameters = [kinds(x.name or f"x{i}", kinds.POSITIONAL_OR_KEYWORD) for i, x in enumerate(args)]
    parameters += [kinds(name, kinds.KEYWORD_ONLY) for name in kwargs]
    name = bytes(function.name).decode() if isinstance(function.name, bytes) else function.name
    name = name.removeprefix("__inference_").rstrip("0123456789_")
    made = Function(lambda *_: function, name, inspect.Signature(parameters), function)
    made.own(function.variables, plain_name)
    return made


def _get(function: Any) -> Callable[[tuple, Mapping[str, Any]], Any]:
    return lambda args, kwargs: function.get_concrete_function(*args, **kwargs)
