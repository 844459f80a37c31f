"""Examples with a batch or a length of 1, which torch.export takes for a constant: made 2."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from anyjax import warn_once
from anyjax.compare.recorders.torch_calls import unmodified

CLOSE = 1e-3  # of the largest value
TOKENS = (torch.int32, torch.int64)


def widen(module: torch.nn.Module, args: tuple, kwargs: dict) -> tuple[Any, Any]:
    """Returns the example with a batch or a length of 1 doubled, if the module takes that.

    Otherwise it stays as it is, with a warning.
    """
    leaves, spec = pytree.tree_flatten((args, kwargs))
    tensors = [x for x in leaves if isinstance(x, torch.Tensor) and x.ndim]
    if tensors and tensors[0].shape[0] == 1:
        leaves = _doubled(module, leaves, spec, 0, _row_rules(tensors[0]))
    if any(map(_has_single_column, leaves)):
        leaves = _doubled(module, leaves, spec, 1, iter([_has_single_column]))
    return pytree.tree_unflatten(leaves, spec)


def _row_rules(first: torch.Tensor) -> Iterator[Callable[[Any], bool]]:
    """Yields tests of whether an array has a row for each element of the batch: first all that may,
    last those like the first input.
    """
    has_single_row = lambda x: isinstance(x, torch.Tensor) and x.ndim > 0 and x.shape[0] == 1
    yield has_single_row
    yield lambda x: has_single_row(x) and x.ndim > 1
    yield lambda x: has_single_row(x) and x.shape[:2] == first.shape[:2]
    yield lambda x: x is first


def _has_single_column(x: object) -> bool:
    """Returns whether an array may hold sequences of length 1; of floats it may be one feature."""
    return isinstance(x, torch.Tensor) and x.ndim in (2, 3) and x.shape[1] == 1


def _doubled(
    module: torch.nn.Module, leaves: list, spec: pytree.TreeSpec, dim: int, rules: Iterator
) -> list:
    """Returns the example doubled in one dimension, by the first rule that the module takes."""
    try:
        narrow = _outputs(module, leaves, spec)
    except Exception:  # what is wrong with it is said where it is exported
        return leaves
    reason = "it gives other values for the same row"
    for is_batched in rules:
        doubled = [torch.cat([x, x], dim) if is_batched(x) else x for x in leaves]
        try:
            wide = _outputs(module, doubled, spec)
        except Exception as error:
            reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
            continue
        if dim or _same_rows(narrow, wide):
            return doubled
    token_columns = [x for x in leaves if _has_single_column(x) and x.dtype in TOKENS]
    if not dim or token_columns:  # a 1 of floats may be a feature or a channel
        kind = "length" if dim else "batch"
        warn_once.warn(
            f"the example has a {kind} of 1 and {type(module).__name__} does not take 2 of it "
            f"({reason}): the file may be for a {kind} of 1 alone",
            UserWarning,
        )
    return leaves


def _outputs(module: torch.nn.Module, leaves: list, spec: pytree.TreeSpec) -> list[torch.Tensor]:
    args, kwargs = copy.deepcopy(pytree.tree_unflatten(leaves, spec))
    with unmodified(module), torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        outputs = pytree.tree_leaves(module(*args, **kwargs))
    return [x.clone() for x in outputs if isinstance(x, torch.Tensor)]


def _same_rows(narrow: list[torch.Tensor], wide: list[torch.Tensor]) -> bool:
    """Returns whether the results for one row are the first row of the results for two."""
    if len(narrow) != len(wide):
        return False
    return all(map(_is_first_row, narrow, wide))


def _is_first_row(narrow: torch.Tensor, wide: torch.Tensor) -> bool:
    if narrow.shape == wide.shape or narrow.ndim != wide.ndim or narrow.shape[1:] != wide.shape[1:]:
        return narrow.ndim == wide.ndim
    if narrow.shape[0] * 2 != wide.shape[0] or not narrow.is_floating_point():
        return True
    narrow, wide = narrow.double().nan_to_num(), wide[: narrow.shape[0]].double().nan_to_num()
    return not narrow.numel() or bool(
        (narrow - wide).abs().max() <= CLOSE * (narrow.abs().max() + 1e-6)
    )
