"""Examples with a batch or a length of 1, which torch.export takes for a number: made 2 of it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tojax import warn_once
from tojax.flax.codegen.graph.dropout_rates import unchanged

CLOSE = 1e-3  # of the largest value
TOKENS = (torch.int32, torch.int64)


def widened(module: torch.nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The example with two rows, and of two places, where it has one and the module takes two.

    What the module refuses stays as it is, with a warning.
    """
    leaves, spec = pytree.tree_flatten((args, kwargs))
    tensors = [x for x in leaves if isinstance(x, torch.Tensor) and x.ndim]
    if tensors and tensors[0].shape[0] == 1:
        leaves = _grown(module, leaves, spec, 0, _rows(tensors[0]))
    if any(map(_one_place, leaves)):
        leaves = _grown(module, leaves, spec, 1, iter([_one_place]))
    return pytree.tree_unflatten(leaves, spec)


def _rows(first: torch.Tensor) -> Iterator[Callable[[Any], bool]]:
    """Which arrays have one row for each element of the batch: all, or those like the first."""
    one = lambda x: isinstance(x, torch.Tensor) and x.ndim > 0 and x.shape[0] == 1
    yield one
    yield lambda x: one(x) and x.ndim > 1
    yield lambda x: one(x) and x.shape[:2] == first.shape[:2]
    yield lambda x: x is first


def _one_place(x: Any) -> bool:
    """Whether an array is of sequences of one place; one of floats may be of one feature."""
    return isinstance(x, torch.Tensor) and x.ndim in (2, 3) and x.shape[1] == 1


def _grown(module: Any, leaves: list, spec: Any, dim: int, ways: Iterator) -> list:
    """The example with this dimension doubled in the first of these ways that the module takes."""
    try:
        before = _called(module, leaves, spec)
    except Exception:  # what is wrong with it is said where it is exported
        return leaves
    why = "it gives other values for the same row"
    for grows in ways:
        more = [torch.cat([x, x], dim) if grows(x) else x for x in leaves]
        try:
            after = _called(module, more, spec)
        except Exception as error:
            why = next(iter(str(error).strip().splitlines()), type(error).__name__)
            continue
        if dim or _same_rows(before, after):
            return more
    whole = [x for x in leaves if _one_place(x) and x.dtype in TOKENS]
    if not dim or whole:  # a 1 of floats may be a feature or a channel
        kind = "length" if dim else "batch"
        warn_once.warn(
            f"the example has a {kind} of 1 and {type(module).__name__} does not take 2 of it "
            f"({why}): the file may be for a {kind} of 1 alone",
            UserWarning,
        )
    return leaves


def _called(module: Any, leaves: list, spec: Any) -> list[torch.Tensor]:
    args, kwargs = copy.deepcopy(pytree.tree_unflatten(leaves, spec))
    with unchanged(module), torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        found = pytree.tree_leaves(module(*args, **kwargs))
    return [x.clone() for x in found if isinstance(x, torch.Tensor)]


def _same_rows(before: list[torch.Tensor], after: list[torch.Tensor]) -> bool:
    """Whether results of one row are the first of those of two."""
    if len(before) != len(after):
        return False
    return all(map(_first_row, before, after))


def _first_row(one: torch.Tensor, two: torch.Tensor) -> bool:
    if one.shape == two.shape or one.ndim != two.ndim or one.shape[1:] != two.shape[1:]:
        return one.ndim == two.ndim
    if one.shape[0] * 2 != two.shape[0] or not one.is_floating_point():
        return True
    one, two = one.double().nan_to_num(), two[: one.shape[0]].double().nan_to_num()
    return not one.numel() or bool((one - two).abs().max() <= CLOSE * (one.abs().max() + 1e-6))
