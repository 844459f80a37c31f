"""Tensors of ONNX as numpy arrays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from jax.typing import ArrayLike
from onnx import numpy_helper

from anyjax.errors import BadCheckpoint
from anyjax.onnx.engine.files import refuse_external

OF_CONSTANT = {
    "value_float": np.float32, "value_floats": np.float32, "value_int": np.int64,
    "value_ints": np.int64, "value_string": np.object_, "value_strings": np.object_,
}  # fmt: skip


def array_of(tensor: onnx.TensorProto) -> np.ndarray:
    """Returns the values of a tensor; text has the dtype object.

    Raises:
      BadCheckpoint: it is damaged.
    """
    refuse_external(tensor)
    try:
        return numpy_helper.to_array(tensor)
    except Exception as error:  # numpy's and protobuf's many kinds
        raise BadCheckpoint(
            f"the tensor {tensor.name!r} is damaged",
            why=" ".join(str(error).split())[:300],
            do="export or download the model again",
        ) from error


def dense(sparse: onnx.SparseTensorProto) -> np.ndarray:
    """Returns a sparse tensor with its zeros."""
    values, places = array_of(sparse.values), array_of(sparse.indices)
    array = np.zeros(tuple(sparse.dims), values.dtype)
    at = tuple(places.T) if places.ndim == 2 else np.unravel_index(places, array.shape)
    array[at] = values
    return array


def constant(attributes: Mapping[str, ArrayLike]) -> np.ndarray:
    """Returns the value of a Constant, which has one attribute."""
    ((name, value),) = attributes.items()
    return np.asarray(value, OF_CONSTANT.get(name))
