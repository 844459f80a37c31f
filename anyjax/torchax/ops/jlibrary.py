"""Operators that a compiled program calls by a name of one's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from anyjax.torchax.ops import jaten
from anyjax.typing import PyTree


def _named(
    name: str, function: Callable[..., PyTree], options: dict[str, Any]
) -> Callable[..., Any]:
    def composite(*args: Any) -> Any:
        return function(*args)

    composite.__name__ = composite.__qualname__ = name
    return jax.jit(composite, **options)


def register_jax_composite(
    composite_name: str, impl: Callable[..., PyTree], *ops: object, **jit_args: Any
) -> None:
    """Serves operators by a function of arrays, which programs call by this name.

    Args:
      composite_name: its name in the text of a program.
      impl: takes the operator's arguments.
      ops: the operators.
      jit_args: those of ``jax.jit``, such as ``static_argnums``.
    """
    jaten.op(*ops)(lambda *args: _named(composite_name, impl, jit_args)(*args))


def register_torch_composite(
    composite_name: str, impl: Callable[..., PyTree], *ops: object, **jit_args: Any
) -> None:
    """Serves operators by a function of tensors, which programs call by this name.

    Args:
      composite_name: its name in the text of a program.
      impl: takes the operator's arguments.
      ops: the operators.
      jit_args: those of ``jax.jit``.
    """
    register_jax_composite(composite_name, jaten.of_arrays(impl), *ops, **jit_args)
