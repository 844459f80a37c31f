"""Transformations of a Model into another one, whichever framework made it."""

from __future__ import annotations

from anyjax.transforms._fold_batchnorm import fold_batchnorm
from anyjax.transforms._intermediates import edit, intermediates
from anyjax.transforms._quantize import quantize
from anyjax.transforms._roll import explain, roll, unroll

__all__ = ["edit", "explain", "fold_batchnorm", "intermediates", "quantize", "roll", "unroll"]
