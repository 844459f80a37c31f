"""Known vectors as shapes."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from tojax.known import as_jax, is_known, known

__all__ = ["as_jax", "is_known", "known", "shape"]


def fixed(value: Any) -> Any:
    """A value that nothing is differentiated by."""
    return value if is_known(value) else jax.lax.stop_gradient(value)


def shape(values: Any) -> tuple:
    """A known vector as a shape."""
    return tuple(x if not isinstance(x, (int, np.integer)) else int(x) for x in values)
