"""Export of Models from any framework to ONNX and SavedModel.

``flat`` is a call with named arrays in and out, ``plain`` its jaxpr in operators that exporters
know, with the help of ``rewrites``; ``onnx`` and ``savedmodel`` write it. Both run the result and
compare it with the model.
"""

from __future__ import annotations

from anyjax.export.onnx import run_onnx, to_onnx
from anyjax.export.savedmodel import to_savedmodel

__all__ = ["run_onnx", "to_onnx", "to_savedmodel"]
