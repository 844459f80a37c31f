"""tf2jax's functions: ``convert`` returns ``fn(params, *inputs) -> (outputs, new params)``.

Source of the behaviour: the documentation of tf2jax 0.3.8.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf

from anyjax.dtypes import fitting
from anyjax.errors import MissingInputError, Unsupported, WrongValue
from anyjax.tensorflow.compat import config
from anyjax.tensorflow.core import options
from anyjax.tensorflow.engine.concrete import Concrete, concrete_of
from anyjax.tensorflow.engine.evaluate import Run, served
from anyjax.tensorflow.state.variables import Handle
from anyjax.typing import PyTree

if TYPE_CHECKING:
    from jax.tree_util import PyTreeDef

    from anyjax.typing import Output


class Variable(np.ndarray):
    """The value of a variable with its ``name`` and whether it is ``trainable``."""

    name: str | None
    trainable: bool | None

    def __new__(cls, values: object, trainable: bool, name: str) -> Variable:
        variable = np.asarray(values).view(cls)
        variable.trainable, variable.name = trainable, name
        return variable

    def __array_finalize__(self, other: object) -> None:
        self.trainable = getattr(other, "trainable", None)
        self.name = getattr(other, "name", None)

    def assign(self, values: object) -> Variable:
        """Returns the same variable with another value."""
        return Variable(values, bool(self.trainable), str(self.name))

    def __repr__(self) -> str:
        values = np.array_repr(np.asarray(self))
        return f"Variable(name={self.name!r}, trainable={self.trainable!r}, numpy={values})"


class AnnotatedFunction:
    """A converted function with TensorFlow's description of it.

    Attributes:
      structured_inputs: (positional, keyword) arguments with a ``tf.TensorSpec`` for every tensor.
      structured_outputs: the outputs with specs.
      signature: the signature of the Python function.

    Example:
      >>> square = tf.function(lambda x: {"y": x * x})
      >>> fn, params = anyjax.tensorflow.convert(square, tf.TensorSpec((2,), tf.float32))
      >>> fn.structured_outputs["y"].shape, fn(params, np.ones(2, np.float32))[0]
      (TensorShape([2]), {'y': Array([1., 1.], dtype=float32)})
    """

    def __init__(
        self,
        fn: Callable[..., Output],
        structured_inputs: tuple[tuple[object, ...], dict[str, object]],
        structured_outputs: object,
        signature: inspect.Signature,
    ):
        self.fn = fn
        self.structured_inputs: tuple[tuple[Any, ...], dict[str, Any]] = structured_inputs
        self.structured_outputs: Any = structured_outputs
        self.__doc__, self.__name__ = fn.__doc__, fn.__name__
        self.__signature__ = signature

    @property
    def signature(self) -> inspect.Signature:
        """The signature of the Python function."""
        return self.__signature__

    def __call__(self, *args: Any, **kwargs: Any) -> Output:
        return self.fn(*args, **kwargs)


@dataclass(eq=False)
class _Converted:
    """One traced function, called with a flat dict of its variables."""

    concrete: Concrete
    names: list[str]
    signature: inspect.Signature
    specs: list[tuple[tuple, Any]]  # path in (args, kwargs) -> spec or Python value
    switches: Mapping[str, Any] = field(default_factory=config.snapshot)

    def __call__(self, params: Mapping[str, PyTree], *args: Any, rng=None, **kwargs: Any) -> Any:
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        leaves = _leaves((bound.args, bound.kwargs))
        inputs = [self._input(path, spec, leaves) for path, spec in self.specs]
        if missing := [n for n in self.names if n not in params]:
            raise WrongValue(
                f"Some parameters are missing, {missing}.",
                why=f"the function uses {len(self.names)} variables",
                do="pass the params that convert returned, or an updated copy",
            )
        variables = {Handle(n): jnp.asarray(_plain(x)) for n, x in params.items()}
        run = Run(self.concrete.library, variables, rng)
        tensors = [x for x in inputs if x is not None]
        with options.using(self.switches):
            flat = run.graph(self.concrete.graph, [*tensors, *self.concrete.captured])
        if lost := sorted(h.name for h in run.written if h.name not in params):
            raise WrongValue(
                f"Some updated parameters are lost, {lost}.",
                why="params does not have these variables",
                do="pass the params that convert returned",
            )
        return self.concrete.pack(list(flat)), {n: run.variables[Handle(n)] for n in params}

    def _input(self, path: tuple, spec: object, leaves: Mapping[tuple, Any]) -> Any:
        """Returns an argument as the graph takes it, None for a Python value."""
        if path not in leaves:
            parameters = ", ".join(f"{jax.tree_util.keystr(p)}: {_text(s)}" for p, s in self.specs)
            raise MissingInputError(
                f"Some input(s) are missing: {jax.tree_util.keystr(path)}",
                why=f"the function takes {parameters}",
                do="pass arguments of the same structure as to convert",
            )
        value = leaves[path]
        if not isinstance(spec, tf.TensorSpec):
            traced = isinstance(value, jax.core.Tracer)
            if spec is not None and (traced or not _same(value, spec)):
                kind = "tracer" if traced else "literal value"
                raise WrongValue(
                    f"Found unexpected {kind} `{value}`, expected `{spec}`",
                    where=f"argument at {jax.tree_util.keystr(path)}",
                    why="the function was traced with this Python value, not with an array",
                    do="convert it with an array, or again with the other value",
                )
            return None
        if isinstance(value, jax.Array):
            return self._checked(path, spec, value)
        value = self._checked(path, spec, fitting(np.asarray(value)))
        return value if not value.ndim and value.dtype.kind in "iub" else jnp.asarray(value)

    def _checked(self, path: tuple, spec: tf.TensorSpec, value: Any) -> Any:
        fixed = [n if isinstance(n, int) else None for n in value.shape]
        if config.get_config("strict_shape_check") and not spec.shape.is_compatible_with(fixed):
            raise WrongValue(
                f"Found incompatible input shape: {value.shape}, expected {spec.shape}",
                where=f"argument at {jax.tree_util.keystr(path)}",
                why="outputs may depend on the shapes that the function was traced with",
                do="convert it for this shape, or set strict_shape_check to False",
            )
        strict = config.get_config("strict_dtype_check")
        if strict and not spec.dtype.is_compatible_with(value.dtype):
            raise WrongValue(
                f"Found incompatible input dtype: {value.dtype}, expected {spec.dtype}",
                where=f"argument at {jax.tree_util.keystr(path)}",
                why="the function was traced with that dtype",
                do="cast the argument, or set strict_dtype_check to False",
            )
        return value


def _plain(value: object) -> Any:
    return np.asarray(value) if isinstance(value, Variable) else value


def _text(spec: object) -> str:
    return f"{spec.dtype.name}{list(spec.shape)}" if isinstance(spec, tf.TensorSpec) else repr(spec)


def _same(value: object, spec: object) -> bool:
    try:
        return bool(value == spec)
    except (TypeError, ValueError):
        return False


def _leaves(tree: PyTree) -> dict[tuple, Any]:
    """Returns every leaf by its path; None is a leaf."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda x: x is None)
    return dict(leaves)


def convert(
    tf_func: object, *args: Any, **kwargs: Any
) -> tuple[AnnotatedFunction, dict[str, Variable]]:
    """Converts a ``tf.function`` to a JAX function of a flat dict of variables and its arguments.

    Args:
      tf_func: a ``tf.function``, or a function of a restored SavedModel.
      *args: arrays, specs or Python values that it is traced for.
      **kwargs: the same, by name.

    Returns:
      ``fn(params, *args, rng=None, **kwargs) -> (outputs, new params)`` and the params: numpy
      arrays with ``name`` and ``trainable``.

    Raises:
      Unsupported: ``tf_func`` cannot be traced.

    Example:
      >>> import numpy as np, tensorflow as tf
      >>> w = tf.Variable(2.0, name="w")
      >>> fn, params = anyjax.tensorflow.convert(tf.function(lambda x: w * x), np.float32(0))
      >>> out, params = fn(params, np.float32(3))
      >>> float(out), params["w"].item()
      (6.0, 2.0)
    """
    if not hasattr(tf_func, "get_concrete_function"):
        raise Unsupported(
            f"convert takes a tf.function, not {tf_func!r}",
            why="it has no get_concrete_function",
            do="wrap it: tf.function(...)",
        )
    args, kwargs = jax.tree.map(_spec_of_tracer, (args, kwargs))
    traced = tf_func.get_concrete_function(*args, **kwargs)
    variables, names = _variables(traced)
    switches = config.snapshot()
    concrete = concrete_of(traced, names, switches["convert_custom_gradient"])
    structured: Any = _named(traced.structured_input_signature, concrete.specs)
    outputs = _named(traced.structured_outputs, [_spec(x) for x in traced.outputs])
    signature = _signature(tf_func, structured)
    specs = [*_leaves(structured).items()]
    fn: Any = _Converted(concrete, [*variables], signature, specs, switches)
    fn.__name__ = getattr(tf_func, "__name__", "converted")
    return AnnotatedFunction(fn, structured, outputs, signature), variables


def convert_functional(tf_func: object, *args: Any, **kwargs: Any) -> AnnotatedFunction:
    """Converts a function without variables: ``fn(*args)`` returns the outputs alone.

    Raises:
      WrongValue: it has variables.

    Example:
      >>> import numpy as np, tensorflow as tf
      >>> fn = anyjax.tensorflow.convert_functional(tf.function(tf.sin), np.float32(0))
      >>> float(fn(np.float32(0)))
      0.0
    """
    return _functional(*convert(tf_func, *args, **kwargs))


def convert_from_restored(tf_func: Any) -> tuple[AnnotatedFunction, dict[str, Variable]]:
    """Converts a function of a SavedModel that was traced once.

    Raises:
      WrongValue: it was traced several times.

    Example:
      >>> import tempfile, tensorflow as tf
      >>> module = tf.Module()
      >>> module.f = tf.function(tf.sin, input_signature=[tf.TensorSpec([])])
      >>> folder = tempfile.mkdtemp()
      >>> tf.saved_model.save(module, folder)
      >>> fn, params = anyjax.tensorflow.convert_from_restored(tf.saved_model.load(folder).f)
      >>> float(fn(params, 0.0)[0])
      0.0
    """
    if tf_func.input_signature is not None:
        return convert(tf_func, *tf_func.input_signature)
    traced: Any = getattr(tf_func, "concrete_functions", ())
    if len(traced) != 1:
        raise WrongValue(
            f"Found {len(traced)} concrete functions",
            why="; ".join(str(x.structured_input_signature) for x in traced),
            do="use convert with the arguments of one of them",
        )
    args, kwargs = traced[0].structured_input_signature
    return convert(tf_func, *args, **kwargs)


def convert_functional_from_restored(tf_func: object) -> AnnotatedFunction:
    """Converts a function of a SavedModel that was traced once and has no variables.

    Raises:
      WrongValue: it was traced several times, or has variables.

    Example:
      >>> import tempfile, tensorflow as tf
      >>> module = tf.Module()
      >>> module.f = tf.function(tf.cos, input_signature=[tf.TensorSpec([])])
      >>> folder = tempfile.mkdtemp()
      >>> tf.saved_model.save(module, folder)
      >>> restored = tf.saved_model.load(folder)
      >>> float(anyjax.tensorflow.convert_functional_from_restored(restored.f)(0.0))
      1.0
    """
    return _functional(*convert_from_restored(tf_func))


def get_unsupported_operations(names: Iterable[str]) -> set[str]:
    """Returns the TensorFlow operators that neither a lowering nor the engine serves.

    Example:
      >>> anyjax.tensorflow.get_unsupported_operations(["Relu", "NotAnOp"])
      {'NotAnOp'}
    """
    return {name for name in names if not served(name)}


def _functional(fn: AnnotatedFunction, params: Mapping[str, PyTree]) -> AnnotatedFunction:
    def call(*args, **kwargs):
        return fn.fn({}, *args, **kwargs)[0]

    if params:
        raise WrongValue(
            f"Expected function to have no captured variables, found {sorted(params)}",
            why="a function of its arguments alone has nowhere to get them from",
            do="use convert, which returns them as params",
        )
    return AnnotatedFunction(call, fn.structured_inputs, fn.structured_outputs, fn.signature)


def _variables(traced: Any) -> tuple[dict[str, Variable], dict[int, str]]:
    """Returns the variables by unique names, and the name of each variable's handle."""
    values: dict[str, Variable] = {}
    names: dict[int, str] = {}
    for variable in traced.variables:
        name = base = variable.name.partition(":")[0]
        count = 0
        while name in values:
            count += 1
            name = f"{base}_{count}"
        values[name] = Variable(variable.numpy(), variable.trainable, name)
        names[id(variable.handle)] = name
    return values, names


def _spec_of_tracer(value: object) -> Any:
    if isinstance(value, jax.core.Tracer):
        return tf.TensorSpec(value.shape, value.dtype)
    return value


def _spec(tensor: tf.Tensor) -> tf.TensorSpec:
    return tf.TensorSpec(tensor.shape, tensor.dtype, tensor.op.name)


def _named(structure: PyTreeDef, specs: list[tf.TensorSpec]) -> Any:
    """Returns a structure with named specs for its tensors and specs."""
    named = iter(specs)
    leaves, shape = jax.tree.flatten(structure, is_leaf=lambda x: x is None)
    tensor = lambda x: isinstance(x, (tf.TensorSpec, tf.Tensor))
    return jax.tree.unflatten(shape, [next(named) if tensor(x) else x for x in leaves])


def _signature(tf_func: Any, structured: Any) -> inspect.Signature:
    """Returns the Python signature, or the keywords of a SavedModel's signature function."""
    kinds = inspect.Parameter
    spec = getattr(getattr(tf_func, "function_spec", None), "fullargspec", None)
    if spec is None:
        names = [name.replace("$", "___") for name in structured[1]]
        return inspect.Signature([kinds(name, kinds.KEYWORD_ONLY) for name in names])
    defaults = dict(zip(spec.args[::-1], (spec.defaults or ())[::-1]))
    parameters = [
        kinds(n, kinds.POSITIONAL_OR_KEYWORD, default=defaults.get(n, kinds.empty))
        for n in spec.args
    ]
    if spec.varargs:
        parameters.append(kinds(spec.varargs, kinds.VAR_POSITIONAL))
    defaults = spec.kwonlydefaults or {}
    parameters += [
        kinds(n, kinds.KEYWORD_ONLY, default=defaults.get(n, kinds.empty)) for n in spec.kwonlyargs
    ]
    if spec.varkw:
        parameters.append(kinds(spec.varkw, kinds.VAR_KEYWORD))
    return inspect.Signature(parameters)
