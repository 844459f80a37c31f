"""Tensors of a module that lie in the same memory without being one: a write to one of them would
be one to the others, which a program has as arrays of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeGuard

import torch

from anyjax.errors import Unsupported
from anyjax.torch.core import private


def overlapping(tensors: Mapping[str, object]) -> dict[str, str]:
    """Returns the names of tensors that share memory, each with that of another one."""
    spans: dict[int, list[tuple[int, int, str, int]]] = {}
    for name, tensor in tensors.items():
        if not _in_memory(tensor) or not tensor.numel():
            continue
        first = tensor.storage_offset() * tensor.itemsize
        reach = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride()))
        span = first, first + (reach + 1) * tensor.itemsize, name, id(tensor)
        spans.setdefault(tensor.untyped_storage()._cdata, []).append(span)
    pairs: dict[str, str] = {}
    for group in (x for x in spans.values() if len(x) > 1):
        for begin, end, name, identity in group:
            for other in group:
                if identity != other[3] and begin < other[1] and other[0] < end:
                    pairs.setdefault(name, other[2])
    return pairs


def _in_memory(value: object) -> TypeGuard[torch.Tensor]:
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    return not value.is_meta and not private.is_functional(value)


def check(pairs: Mapping[str, str], written: Collection[str]) -> None:
    """Raises Unsupported where forward wrote to a tensor whose memory another one shares."""
    for name in written if pairs else ():
        if name in pairs:
            raise Unsupported(
                f"forward writes to {name}, in whose memory {pairs[name]} lies, too",
                why="in a program each of them is an array of its own: one would keep old values",
                do="keep one of the two, and make the view inside of forward",
            )
