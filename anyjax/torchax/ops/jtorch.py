"""Functions that take the place of torch's in every environment."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from anyjax.torchax.ops.ops_registry import register_torch_function_op


def register_function(torch_func: object, **kwargs: Any) -> Callable[..., Any]:
    """Returns a decorator: the function serves ``torch_func`` in every environment.

    Args:
      torch_func: such as ``torch.nn.functional.scaled_dot_product_attention``.
      kwargs: ``is_jax_function=False`` for a function of tensors, ``needs_env=True``.
    """
    return functools.partial(register_torch_function_op, torch_func, **kwargs)
