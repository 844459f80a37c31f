"""Groups of rows whose sizes only the program knows, as mixtures of experts are written:
``x.split(sizes.tolist())``, a linear layer for each group, ``cat`` of what they give.

Together these are one grouped product. Whatever else is done with such sizes or groups raises
DataDependent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import torch

from anyjax.torch.core import private

SPLITS = {torch.Tensor.split, torch.split}
SPLITS |= {torch.Tensor.split_with_sizes, torch.split_with_sizes}
LINEAR = torch.nn.functional.linear
JOINS = {torch.cat, torch.concat, torch.concatenate}


class Sizes:
    """The ``tolist()`` of a traced vector: only its length is known."""

    __slots__ = ("error", "tensor")

    def __init__(self, tensor: torch.Tensor, error: Callable[[], Exception]):
        self.tensor, self.error = tensor, error

    def __len__(self) -> int:
        return self.tensor.shape[0]

    def refuse(self, *_, **__) -> NoReturn:
        """Raises DataDependent."""
        raise self.error()

    __iter__ = __getitem__ = __contains__ = __bool__ = __hash__ = __array__ = refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = refuse
    __add__ = __radd__ = __mul__ = __rmul__ = refuse


class Group:
    """The rows number ``place`` of ``rows`` in groups of ``sizes``, multiplied by ``weights``."""

    __slots__ = ("place", "rows", "sizes", "weights")

    def __init__(self, rows: torch.Tensor, sizes: Sizes, place: int, weights: tuple = ()):
        self.rows, self.sizes, self.place, self.weights = rows, sizes, place, weights

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.sizes.refuse()

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        groups = [x for x in held_in(args) if isinstance(x, Group)]
        groups[0].sizes.refuse()


def held_in(args: tuple) -> list[Any]:
    """The arguments, and what is in those that are lists."""
    values = list(args)
    for value in args:
        values += value if type(value) in (list, tuple) else ()
    return values


def concerns(args: tuple, kwargs: Mapping[str, object]) -> Sizes | None:
    """Returns the sizes among a call's arguments, or of a group among them."""
    values = held_in((*args, *kwargs.values()))
    return next((getattr(x, "sizes", x) for x in values if type(x) in (Sizes, Group)), None)


def serve(mode, func, args, kwargs, sizes: Sizes) -> Any:
    """Returns a call that concerns these sizes."""
    if func in SPLITS and len(args) == 2 and not kwargs.get("dim") and args[0].dim() == 2:
        return tuple(Group(args[0], args[1], i) for i in range(len(args[1])))
    if func is LINEAR and type(args[0]) is Group and not kwargs and args[2:] in ((), (None,)):
        first = args[0]
        return Group(first.rows, first.sizes, first.place, (*first.weights, args[1]))
    if func in JOINS and len(args) == 1 and not kwargs.get("dim") and whole(args[0]):
        with mode:
            return joined(args[0])
    return sizes.refuse()


def whole(groups: Sequence[Group]) -> bool:
    """Returns whether these are all groups of one split, in order, after as many layers."""
    if not all(type(x) is Group for x in groups):
        return False
    splits = {(id(x.rows), id(x.sizes), len(x.weights)) for x in groups}
    return len(splits) == 1 and [x.place for x in groups] == [*range(len(groups[0].sizes))]


def joined(groups: list[Group]) -> torch.Tensor:
    """Returns all rows, each multiplied by the weights of its group."""
    first = groups[0]
    ends = first.sizes.tensor.cumsum(0).to(torch.int32)
    out = first.rows
    for layer in zip(*(x.weights for x in groups)):
        out = private.grouped_mm(out, torch.stack(layer).transpose(1, 2), offs=ends)
    return out
