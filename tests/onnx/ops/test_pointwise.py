"""Casts and powers of integers."""

import numpy as np
import pytest
from onnx import TensorProto

from tests.onnx.with_onnxruntime import assert_agrees


@pytest.mark.parametrize("to", ["INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32"])
def test_floats_beyond_a_type_of_integers(to):
    """ONNX leaves them open; onnxruntime and its reference keep the lowest bits."""
    x = np.float32([0, 1.5, -1.5, -2.7, 127.5, 128, -129, 255.5, 256, 300, -1, 1e6, -1e6])
    assert_agrees("Cast", {"input": x}, to=getattr(TensorProto, to))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_to_negative_powers(dtype):
    base, power = np.meshgrid(
        np.array([-3, -2, -1, 1, 2, 3], dtype), np.array([-2, -1, 0, 3], dtype)
    )
    assert_agrees("Pow", {"X": base, "Y": power})
