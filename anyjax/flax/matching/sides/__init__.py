"""The JAX side of a match: nnx, Linen, Equinox, or a plain pytree."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
from flax import nnx

from anyjax.errors import WrongArguments
from anyjax.flax.matching.sides.flax_sides import LinenSide, NnxSide
from anyjax.flax.matching.sides.pytree_side import PytreeSide
from anyjax.flax.matching.sides.side import JaxSide, Values
from anyjax.typing import PyTree

__all__ = ["JaxSide", "Values", "jax_side"]


def jax_side(
    model: PyTree,
    variables: PyTree = None,
    example: tuple | None = None,
    kwargs: Mapping[str, Any] | None = None,
    apply: Callable[..., PyTree] | None = None,
) -> JaxSide:
    """Returns the side for a JAX model.

    Args:
      model: an ``nnx.Module``, a ``linen.Module``, an ``equinox.Module``, or a pytree of arrays.
      variables: of a Linen module, or an ``equinox.nn.State``.
      example: of the arguments; Linen needs it, or variables.
      kwargs, apply: how the model is called.

    Raises:
      WrongArguments: it is none of these, or a Linen module without shapes.
    """
    kwargs = kwargs or {}
    if isinstance(model, nn.Module):
        return LinenSide(model, variables, example, kwargs, apply)
    if "equinox" in sys.modules and isinstance(model, sys.modules["equinox"].Module):
        from anyjax.flax.matching.sides.equinox_side import EquinoxSide

        return EquinoxSide(model, variables, kwargs, apply)
    if variables is not None:
        raise WrongArguments(
            f"variables=... beside a {type(model).__name__}",
            where="variables",
            why="only Linen modules, and Equinox modules with a State, keep them apart",
            do="leave variables out",
        )
    if isinstance(model, nnx.Module):
        return NnxSide(model, kwargs, apply)
    return PytreeSide(model, kwargs, apply)
