"""Functions that take the place of torch's in every environment.

anyjax's own table of lowerings is another one, which these do not touch: what ``from_torch`` and
``on_jax`` compute stays as it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from anyjax.typing import PyTree


@dataclasses.dataclass
class Operator:
    """A function in the place of one of torch's.

    Attributes:
      torch_op: a torch function, an operator, or all overloads of one (``torch.ops.aten.add``).
      func: takes its arguments.
      is_jax_function: whether it takes and returns arrays instead of tensors.
      is_user_defined, is_view_op: without meaning: views are tensors.
      needs_env: whether it takes the environment as ``env``.
    """

    torch_op: Any
    func: Callable[..., PyTree]
    is_jax_function: bool
    is_user_defined: bool
    needs_env: bool
    is_view_op: bool


all_aten_ops: dict[Any, Operator] = {}
all_torch_functions: dict[Any, Operator] = {}


def register_torch_dispatch_op(
    aten_op: object, impl_callable: Callable[..., PyTree], is_jax_function: bool = True,
    is_user_defined: bool = False, needs_env: bool = False, is_view_op: bool = False,
) -> Callable[..., Any]:  # fmt: skip
    """Serves an operator in every environment from now on; returns the function."""
    options = is_jax_function, is_user_defined, needs_env, is_view_op
    all_aten_ops[aten_op] = Operator(aten_op, impl_callable, *options)
    return impl_callable


def register_torch_function_op(
    torch_func: object, impl_callable: Callable[..., PyTree], is_jax_function: bool = True,
    is_user_defined: bool = False, needs_env: bool = False, is_view_op: bool = False,
) -> Callable[..., Any]:  # fmt: skip
    """Serves a torch function in every environment from now on; returns the function."""
    options = is_jax_function, is_user_defined, needs_env, is_view_op
    all_torch_functions[torch_func] = Operator(torch_func, impl_callable, *options)
    return impl_callable
