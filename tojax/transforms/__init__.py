"""Transformations of a Model into another one, whichever framework made it."""

from __future__ import annotations

from tojax.transforms._quantize import quantize

__all__ = ["quantize"]
