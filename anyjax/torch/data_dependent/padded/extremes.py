"""The least and the greatest of ``x[mask]``, and its product: over all rows, of which those that do
not count are lost beside any number.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from anyjax.torch.core import current_trace
from anyjax.torch.core.lifting import array_of
from anyjax.torch.data_dependent.padded.padded import Padded

UNITS = {"prod": 1, "logsumexp": "min"}  # and the limits of the dtype
UNITS |= {"amax": "min", "max": "min", "amin": "max", "min": "max"}
INFINITE = {"min": -math.inf, "max": math.inf}


def without_others(padded: Padded, name: str) -> torch.Tensor:
    """Returns the rows, those that do not count with what is lost beside any number; where none
    counts, torch has no greatest one.
    """
    unit: Any = UNITS[name]
    if unit != 1 and padded.dtype is torch.bool:
        unit = unit == "max"
    elif unit != 1:
        is_float = padded.dtype.is_floating_point
        unit = INFINITE[unit] if is_float else getattr(torch.iinfo(padded.dtype), unit)
    conditions = current_trace.trace().conditions
    if name not in ("prod", "logsumexp") and conditions is not None:
        conditions.append(array_of(padded.chosen.any()))
    counts = padded.beside(padded.rows)
    return torch.where(counts, padded.rows, torch.full_like(padded.rows, unit))
