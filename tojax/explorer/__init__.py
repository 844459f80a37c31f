"""A model to look at: its modules, their work, its weights: ``tojax.explore``."""

from __future__ import annotations

from tojax.explorer._explore import explore
from tojax.explorer.report import Report

__all__ = ["Report", "explore"]
