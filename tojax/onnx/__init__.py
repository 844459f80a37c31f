"""ONNX models as pure JAX functions."""

from __future__ import annotations

from tojax.errors import imports_of

with imports_of("tojax.onnx"):
    import onnx  # noqa: F401

from tojax.onnx.core.schema import lowers
from tojax.onnx.source import from_onnx

__all__ = ["from_onnx", "lowers"]
