"""Transformations of a Model into another one, whichever framework made it."""

from __future__ import annotations

from tojax.transforms._fold_batchnorm import fold_batchnorm
from tojax.transforms._intermediates import edit, intermediates
from tojax.transforms._quantize import quantize
from tojax.transforms._roll import explain, roll, unroll

__all__ = ["edit", "explain", "fold_batchnorm", "intermediates", "quantize", "roll", "unroll"]
