"""ONNX models as pure JAX functions."""

from __future__ import annotations

from anyjax.errors import imports_of

with imports_of("anyjax.onnx"):
    import onnx  # noqa: F401

from anyjax.onnx.core.schema import lowers
from anyjax.onnx.source import from_onnx

__all__ = ["from_onnx", "lowers"]
