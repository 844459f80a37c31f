"""The inputs of a graph as the arguments of a model."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import onnx

from anyjax import trees
from anyjax.dtypes import canonical
from anyjax.errors import WrongArguments
from anyjax.onnx.core import dtypes
from anyjax.onnx.core.nodes import Graph
from anyjax.typing import PyTree


class Input(NamedTuple):
    """An input: its name in ONNX and as an argument, its kind ("tensor", "sequence", "optional"),
    the type of its elements, and its sizes, which are numbers, names, or None; None if unknown.
    """

    name: str
    argument: str
    kind: str
    element: int
    shape: tuple[int | str | None, ...] | None


def read(proto: onnx.GraphProto, graph: Graph) -> tuple[Input, ...]:
    """Returns the inputs of a graph.

    Raises:
      Unsupported: one is of strings.
    """
    types = {x.name: x.type for x in proto.input}
    inputs: list[Input] = []
    for i, name in enumerate(graph.inputs):
        argument = re.sub(r"\W", "_", name)
        names = {x.argument for x in inputs}
        if not argument.isidentifier() or argument in names:
            argument = f"x{i}" if argument in names else f"x_{argument}"
        inputs.append(Input(name, argument, *_kind(types[name])))
        dtypes.to_numpy(inputs[-1].element)  # refuses strings
    return tuple(inputs)


def _kind(type: onnx.TypeProto) -> tuple[str, int, Any]:
    kind = type.WhichOneof("value") or "tensor_type"
    if kind in ("sequence_type", "optional_type"):
        outer = kind.removesuffix("_type")
        return outer, _kind(getattr(type, kind).elem_type)[1], None
    tensor = type.sparse_tensor_type if kind == "sparse_tensor_type" else type.tensor_type
    if not tensor.HasField("shape"):
        return "tensor", tensor.elem_type, None
    size = lambda d: (
        d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else d.dim_param or None
    )
    return "tensor", tensor.elem_type, tuple(map(size, tensor.shape.dim))


def of(inputs: Sequence[Input]) -> inspect.Signature:
    """Returns the signature of a call; optional inputs may be left out."""
    keyword, empty = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
    parameters: list[inspect.Parameter] = []
    default: Any = None
    for x in reversed(inputs):  # none without a default may follow one that has it
        default = None if default is None and x.kind == "optional" else empty
        parameters.insert(0, inspect.Parameter(x.argument, keyword, default=default))
    return inspect.Signature(parameters)


def arrange(
    signature: inspect.Signature, inputs: Sequence[Input], args: tuple, kwargs: Mapping[str, PyTree]
) -> list[Any]:
    """Returns the values of the inputs in their order.

    Raises:
      WrongArguments: they are not those of the graph, in names, dtypes or shapes.
    """
    arguments = {x.name: x.argument for x in inputs}
    try:
        bound = signature.bind(*args, **{arguments.get(k, k): v for k, v in kwargs.items()})
    except TypeError as error:
        raise WrongArguments(
            str(error),
            why=f"the graph is called as {signature}",
            do=f"give its inputs: {', '.join(arguments) or 'none'}",
        ) from error
    bound.apply_defaults()
    return [_checked(x, bound.arguments[x.argument]) for x in inputs]


def _checked(wanted: Input, value: PyTree) -> Any:
    if wanted.kind == "optional" and value is None:
        return None
    if isinstance(value, (list, tuple)) and wanted.kind != "tensor":
        return [_tensor(wanted, x) for x in value]
    return _tensor(wanted, value)


def _tensor(wanted: Input, value: PyTree) -> Any:
    dtype = dtypes.to_numpy(wanted.element)
    if isinstance(value, trees.Constant):
        value = value.array
    elif not trees.is_array(value):
        value = np.asarray(value, dtype)
    fits = wanted.shape is None or (
        len(wanted.shape) == len(value.shape)
        and all(not isinstance(n, int) or n == m for n, m in zip(wanted.shape, value.shape))
    )
    if not fits or canonical(value.dtype) != canonical(dtype):
        sizes = wanted.shape and ", ".join(str(n or "?") for n in wanted.shape)
        raise WrongArguments(
            f"{wanted.name!r} is {value.dtype}{list(value.shape)}",
            why=f"the graph takes {dtypes.name_of(wanted.element)}"
            + ("" if wanted.shape is None else f"[{sizes or ''}]"),
            do="give an array of that shape and dtype",
        )
    return value if isinstance(value, (np.ndarray, jax.core.Tracer)) else jax.numpy.asarray(value)
