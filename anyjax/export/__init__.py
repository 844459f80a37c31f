"""Export of Models from any framework to ONNX and SavedModel.

``flat`` is a call with named arrays in and out, ``plain`` its jaxpr in operators that exporters
know, with the help of ``rewrites``; ``onnx`` and ``savedmodel`` write it. Both run the result and
compare it with the model. ``potentials`` has models of atoms, for simulators.
"""

from __future__ import annotations

from anyjax.export.onnx import run_onnx, to_onnx
from anyjax.export.potentials.potential import Potential, load_atoms
from anyjax.export.potentials.writing import atoms
from anyjax.export.savedmodel import to_savedmodel

__all__ = ["Potential", "atoms", "load_atoms", "run_onnx", "to_onnx", "to_savedmodel"]
