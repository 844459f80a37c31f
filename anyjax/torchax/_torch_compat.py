"""Operators that some versions of torch have."""

from __future__ import annotations

import torch

from anyjax.torch.core import private


def get_aten_overload(packet_name: str, overload_name: str) -> private.OpOverload | None:
    """Returns an overload of ``torch.ops.aten``, None where this torch has it not."""
    return getattr(getattr(torch.ops.aten, packet_name), overload_name, None)
