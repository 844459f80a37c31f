"""ONNX's element types as dtypes."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from anyjax.dtypes import canonical
from anyjax.errors import Unsupported

STRING = onnx.TensorProto.STRING


def to_numpy(element: int) -> np.dtype:
    """Returns the dtype of an element type, as wide as ONNX's.

    Raises:
      Unsupported: no array has such elements.

    Example:
      >>> import onnx
      >>> to_numpy(onnx.TensorProto.INT64), to_numpy(onnx.TensorProto.BFLOAT16)
      (dtype('int64'), dtype(bfloat16))
    """
    try:
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(element))
    except (KeyError, TypeError):
        dtype = np.dtype(object)
    if dtype.kind in "OSU":
        raise Unsupported(
            f"elements of type {name_of(element)}",
            why="JAX has arrays of numbers only",
            do="leave out what makes them: anyjax.from_onnx(file, outputs=[...])",
        )
    return dtype


def to_jax(element: int) -> np.dtype:
    """Returns the dtype that JAX computes an element type in."""
    return canonical(to_numpy(element))


def name_of(element: int) -> str:
    """Returns ONNX's own name of an element type, in small letters."""
    names = {number: name for name, number in onnx.TensorProto.DataType.items()}
    return names.get(element, str(element)).lower()
