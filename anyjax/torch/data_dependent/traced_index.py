"""``x[i]`` and ``x[..., i] = value`` where ``i`` is a traced integer: torch asks for its value."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from anyjax.torch.core import private
from anyjax.torch.core.lifting import is_traced

GET, SET = torch.Tensor.__getitem__, torch.Tensor.__setitem__


def is_place(index: object) -> bool:
    """Returns whether an index is an integer that only the compiled program knows."""
    number = isinstance(index, torch.Tensor) and not index.dim() and index.dtype is not torch.bool
    return number and is_traced(index)


def traced_index(args: tuple) -> bool:
    """Returns whether a call of GET or SET has such an integer in its index."""
    index = args[1] if isinstance(args[1], tuple) else (args[1],)
    return any(map(is_place, index))


def place_of(index: tuple, rank: int) -> tuple[int, int] | None:
    """(position in the index, dimension of the tensor) of its first traced integer."""
    takes = [_dimensions(x) for x in index]
    dimension = 0
    for place, (x, count) in enumerate(zip(index, takes)):
        if is_place(x):
            return place, dimension
        dimension += rank - sum(takes) if x is Ellipsis else count
    return None


def _dimensions(x: object) -> int:
    """Returns how many dimensions of a tensor one part of an index takes."""
    if x is None or x is Ellipsis or isinstance(x, bool):
        return 0
    return x.dim() if isinstance(x, torch.Tensor) and x.dtype is torch.bool else 1


def rows(tensor: torch.Tensor, dimension: int, index: torch.Tensor) -> torch.Tensor:
    """Returns the index as a vector of one element, counted from the front."""
    return torch.where(index < 0, index + tensor.shape[dimension], index).reshape(1)


def assign(tensor: torch.Tensor, index: tuple, value: object) -> None:
    """``tensor[index] = value``, the rows that a traced integer picks taken out and put back."""
    index_place = place_of(index, tensor.dim())
    if index_place is None:
        tensor[index] = value
        return
    place, dimension = index_place
    where = rows(tensor, dimension, index[place])
    row = tensor.index_select(dimension, where)
    assign(row, (*index[:place], 0, *index[place + 1 :]), value)
    tensor.index_copy_(dimension, where, row)


class Picked:
    """Reads of ``x[i]`` at traced indices. In torch they share the memory of ``x``; here they are
    copies, and ``sync`` carries writes to either, or to a view of it, over to the other.
    """

    def __init__(self) -> None:
        self.found: list[list[Any]] = []
        self.busy = False

    def get(self, tensor: torch.Tensor, index: object) -> torch.Tensor:
        """``tensor[index]``, one ``index_select`` for each traced integer."""
        index = index if isinstance(index, tuple) else (index,)
        out = self._read(tensor, index)
        self.found.append([out, tensor, index, count(out), count(tensor)])
        return out

    def twin(self, out: torch.Tensor, tensor: torch.Tensor) -> None:
        """``out`` is a detached copy: the values are one, each keeps a gradient of its own."""
        self.found.append([out, tensor, TWIN, count(out), count(tensor)])

    def put(self, tensor: torch.Tensor, index: object, value: object) -> None:
        """``tensor[index] = value``."""
        assign(tensor, index if isinstance(index, tuple) else (index,), value)

    def _read(self, tensor, index):
        while index_place := place_of(index, tensor.dim()):
            place, dimension = index_place
            tensor = tensor.index_select(dimension, rows(tensor, dimension, index[place]))
            index = (*index[:place], 0, *index[place + 1 :])
        return tensor[index]

    def sync(self) -> None:
        """After any call that may have written."""
        if self.busy:
            return
        self.busy = True
        for entry in reversed(self.found):
            out, tensor, index, seen, _ = entry
            if count(out) != seen:
                self._over(tensor, out) if index is TWIN else assign(tensor, index, out)
                entry[3:] = count(out), count(tensor)
        for entry in self.found:
            out, tensor, index, _, seen = entry
            if count(tensor) != seen:
                if index is TWIN:
                    self._over(out, tensor)
                else:
                    out.copy_(self._read(tensor, index))
                entry[3:] = count(out), count(tensor)
        self.busy = False

    @contextlib.contextmanager
    def exchanging(self) -> Iterator[None]:
        """While tensors get other values in here, which counts as a write, but is none."""
        self.sync()
        yield
        for entry in self.found:
            entry[3:] = count(entry[0]), count(entry[1])

    def _over(self, target: torch.Tensor, source: torch.Tensor) -> None:
        with torch.no_grad():
            target.copy_(source)


TWIN = object()  # in place of an index: the whole tensor, detached
count = private.writes_so_far
