"""ONNX models as pure JAX functions."""

from __future__ import annotations

try:
    import onnx  # noqa: F401
except ModuleNotFoundError as error:
    from tojax.errors import missing

    raise missing(error, "from_onnx") from error

from tojax.onnx.core.schema import lowers
from tojax.onnx.source import from_onnx

__all__ = ["from_onnx", "lowers"]
