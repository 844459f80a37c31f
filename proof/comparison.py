"""Comparison of JAX's arrays with torch's, up to rounding."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import torch

from proof.records import portable

Arrays = Sequence[object]


class Wrong(Exception):
    """A check that fails."""


class NotApplicable(Exception):
    """A check that says nothing of this model."""


def first_line(error: BaseException) -> str:
    """Returns an error as its class and the first line of its text."""
    lines = str(error).strip().splitlines() or [""]
    text = lines[0] if isinstance(error, Wrong) else f"{type(error).__name__}: {lines[0]}"
    return portable(text)[:300]


def compare(
    arrays: Arrays,
    reference: Arrays,
    rtol: float,
    random: Collection[int] = (),
    names: Sequence[str] = (),
    floor: float = 0.0,
) -> None:
    """Checks that arrays equal the reference up to a part of each one's largest value.

    Args:
      arrays, reference: as many of each.
      rtol: of the largest value of each array of the reference.
      random: places where only shapes count.
      names: of the arrays, for the error.
      floor: the least that counts as the largest value.

    Raises:
      Wrong: they differ.
    """
    if len(arrays) != len(reference):
        raise Wrong(f"{len(arrays)} arrays, torch has {len(reference)}")
    for i, (array, wanted) in enumerate(zip(arrays, reference)):
        name = names[i] if names else f"array {i}"
        x, y = as_numpy(array), as_numpy(wanted)
        if x.shape != y.shape:
            raise Wrong(f"{name} has the shape {x.shape}, torch {y.shape}")
        if i in random or not y.size:
            continue
        finite = np.isfinite(y)
        if not np.array_equal(x[~finite], y[~finite], equal_nan=True):
            raise Wrong(f"{name} has other infinities than torch")
        if finite.any():
            scale = max(floor, np.abs(y[finite]).max())
            distance = np.abs(x[finite] - y[finite]).max()
            if not distance <= rtol * scale:
                raise Wrong(f"{name} differs by {distance / (scale or 1):.2g} of its largest value")


def as_numpy(array: object) -> np.ndarray:
    """Returns an array or a tensor in float64."""
    if isinstance(array, torch.Tensor):
        array = array.detach().double()
    return np.asarray(array).astype(np.float64)


def settle(
    arrays: Arrays,
    reference: Arrays,
    exact: Callable[[], Arrays],
    rtol: float,
    random: Collection[int] = (),
    names: Sequence[str] = (),
    floor: float = 0.0,
) -> None:
    """Checks the same, but allows four times the distance of torch's own result in 32 bits from 64.

    Some values are what rounding leaves, as gradients of a bias that a softmax cancels.

    Args:
      exact: computes the reference in 64 bits; called where the arrays differ.
    """
    try:
        compare(arrays, reference, rtol, random, names, floor)
    except Wrong:
        try:
            truth = exact()
        except (RuntimeError, TypeError, ValueError):
            truth = []  # the model insists on 32 bits
        if len(truth) != len(reference) or len(arrays) != len(reference):
            raise
        distance = lambda x, y: float(np.abs(as_numpy(x) - as_numpy(y)).max(initial=0))
        for i, (array, wanted, wide) in enumerate(zip(arrays, reference, truth)):
            if i in random:
                continue
            if as_numpy(array).shape != as_numpy(wide).shape:
                raise
            scale = max(floor, np.abs(as_numpy(wide)).max(initial=0))
            if not distance(array, wide) <= max(4 * distance(wanted, wide), rtol * scale):
                raise


def torch_slopes(
    out: Sequence[torch.Tensor], named: Mapping[str, torch.Tensor]
) -> tuple[dict[str, torch.Tensor], list[int]]:
    """Returns torch's gradients of a sum over outputs by each tensor, and which outputs are in it.

    Raises:
      NotApplicable: torch has none.
    """
    places = [i for i, x in enumerate(out) if x.is_floating_point() and x.requires_grad]
    if not places or not named:
        raise NotApplicable("torch has no gradients")
    loss = sum(out[i].sin().sum() for i in places)
    try:
        slopes = torch.autograd.grad(loss, [*named.values()], allow_unused=True)
    except RuntimeError as error:
        raise NotApplicable("torch itself has no gradients") from error
    pairs = zip(named, slopes)
    return {k: torch.zeros_like(named[k]) if x is None else x for k, x in pairs}, places
