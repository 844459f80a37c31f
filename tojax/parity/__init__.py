"""Where a model and its original part: ``tojax.verify``."""

from __future__ import annotations

from tojax.parity._verify import verify
from tojax.parity.report.report import Report

__all__ = ["Report", "verify"]
