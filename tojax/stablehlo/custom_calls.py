"""Custom calls by the name of their target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tojax.errors import MissingOps
from tojax.stablehlo.core.region import Operation

CALLS: dict[str, Callable] = {}


def serves(*targets: str) -> Callable[[Callable], Callable]:
    """Decorator: ``function(operands, attributes, types) -> outputs`` serves these targets."""

    def add(function: Callable) -> Callable:
        CALLS.update(dict.fromkeys(targets, function))
        return function

    return add


def call(op: Operation, target: str, operands: list, attributes: dict[str, Any]) -> Sequence[Any]:
    """The outputs of a custom call.

    Raises:
      MissingOps: nothing serves its target.
    """
    if target not in CALLS:
        raise MissingOps(
            f"the custom call {target!r} is unknown",
            ops=(target,),
            why="what it computes stands in the program that made the module, not in the module",
            do=f"serve it: @tojax.stablehlo.serves({target!r}), a function of (operands, "
            "attributes, types)",
        )
    return CALLS[target](operands, attributes, op.types)
