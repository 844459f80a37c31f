"""Lists in two parts, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def partition(
    original: Sequence[T], func: Callable[[T], bool]
) -> tuple[list[T | None], list[T | None]]:
    """Returns the elements that ``func`` is true for, and the other ones, each list with None in
    the places of the other.

    Example:
      >>> partition([1, 2, 3], lambda n: n % 2 == 0)
      ([None, 2, None], [1, None, 3])
    """
    chosen = [bool(func(x)) for x in original]
    return (
        [x if yes else None for x, yes in zip(original, chosen)],
        [None if yes else x for x, yes in zip(original, chosen)],
    )


def merge(list1: Sequence[T | None], list2: Sequence[T | None]) -> list[T | None]:
    """Returns the elements of the first list, where that has None those of the second.

    Example:
      >>> merge([None, 2, None], [1, None, 3])
      [1, 2, 3]
    """
    assert len(list1) == len(list2)
    return [b if a is None else a for a, b in zip(list1, list2)]
