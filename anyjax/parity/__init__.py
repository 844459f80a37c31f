"""Where a model and its original part: ``anyjax.verify``."""

from __future__ import annotations

from anyjax.parity._verify import verify
from anyjax.parity.report.report import Report

__all__ = ["Report", "verify"]
