"""Transformations of a Model into another one, whichever framework made it."""

from __future__ import annotations

from tojax.transforms._quantize import quantize
from tojax.transforms._roll import explain, roll, unroll

__all__ = ["explain", "quantize", "roll", "unroll"]
