"""Conditions that torch raises without, of values that only the program knows:

    torch_compilable_check(image_tokens == features.shape[0], "do not match")

A program cannot raise: where one fails, it gives NaN for floats, and ``model(...)`` raises.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import torch

from tojax.torch import checks
from tojax.torch.tensor import JaxTensor, inner


def current_trace() -> Any:
    """The trace that runs the code which asks; None in code that torch keeps to itself."""
    modes = torch.overrides._get_current_function_mode_stack()
    return next((mode.trace for mode in reversed(modes) if hasattr(mode, "trace")), None)


def note(condition: torch.Tensor) -> None:
    """The program gives numbers only where all of the condition holds, unless the code that asks
    is traced on its own, as a loop's body is.
    """
    trace = current_trace()
    held = None if trace is None or trace.conditions is None else inner(condition.all())
    if not isinstance(held, JaxTensor):
        checks.left_out(5)
    elif isinstance(held.array, jax.core.Tracer):
        trace.conditions.append(held.array)


def enforced(out: Any, conditions: list[jax.Array] | None) -> tuple[Any, jax.Array | None]:
    """(the output, its floats NaN unless the conditions hold, whether they do).

    Gradients are NaN, too, so this is a product and no selection.
    """
    if not conditions:
        return out, None
    holds = jnp.stack(conditions).all()
    factor = jnp.where(holds, 1, jnp.nan)
    floats = lambda x: isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jnp.inexact)
    return jax.tree.map(lambda x: x * factor.astype(x.dtype) if floats(x) else x, out), holds
