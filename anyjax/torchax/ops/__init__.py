"""Operators: dtypes, and functions that take the place of torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def all_aten_jax_ops() -> dict[Any, Callable[..., Any]]:
    """Returns the operators that functions of arrays serve."""
    from anyjax.torchax.ops import ops_registry

    served = ops_registry.all_aten_ops.items()
    return {key: op.func for key, op in served if op.is_jax_function}
