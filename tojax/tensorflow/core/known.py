"""Known vectors as shapes."""

from __future__ import annotations

from typing import Any

import jax

from tojax.known import as_jax, is_known, known
from tojax.known import sizes as shape

__all__ = ["as_jax", "is_known", "known", "shape"]


def fixed(value: Any) -> Any:
    """A value that nothing is differentiated by."""
    return value if is_known(value) else jax.lax.stop_gradient(value)
