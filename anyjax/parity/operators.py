"""Operators in JAX and in torch, compared as models of their own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from anyjax.compare.judge import Comparison, compare
from anyjax.compare.passes import forward_passes
from anyjax.compare.recorders.torch_operators import Operator
from anyjax.compare.side import OUTPUT, Call
from anyjax.compare.sides.jax_side import JaxSide
from anyjax.compare.sides.torch_side import TorchSide
from anyjax.errors import AnyjaxError
from anyjax.torch.source import from_torch


def compare_operators(operators: Iterable[Operator]) -> tuple[list[Comparison], list[str]]:
    """Returns the comparisons, and the paths of those that are not served on their own, such as
    random ones.
    """
    comparisons: list[Comparison] = []
    unserved: list[str] = []
    for operator in operators:
        comparison = compare_operator(operator)
        if comparison is None:
            unserved.append(operator.path)
        else:
            comparisons.append(comparison)
    return comparisons, unserved


def compare_operator(operator: Operator) -> Comparison | None:
    """Compares one operator for its own inputs; None if it is not served on its own."""
    model = from_torch(operator)
    call = Call((*operator.tensors,), {})
    try:
        sides = TorchSide(model.source.module, call, {}), JaxSide(model, call, True)
        (*_, comparison) = compare(forward_passes(*sides), {})
    except AnyjaxError:
        return None
    assert comparison.path == OUTPUT
    return replace(comparison, path=operator.path, kind=operator.name)
