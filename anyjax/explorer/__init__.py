"""A model to look at: its modules, their work, its weights: ``anyjax.explore``."""

from __future__ import annotations

from anyjax.explorer._explore import explore
from anyjax.explorer.report import Report

__all__ = ["Report", "explore"]
