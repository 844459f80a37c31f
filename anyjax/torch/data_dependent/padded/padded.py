"""``x[mask]`` where only the program knows how many rows that is: all rows, of which some count.

What works on each row by itself is computed for all of them; sums, means and losses take those that
count; ``y[mask] = ...`` puts them back. Between two functions the other rows are 0, and no gradient
passes through them, so nothing of them reaches a result. How many there are is a traced number;
what needs it as a Python one raises DataDependent. See padded/rules.py for the functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, NoReturn

import torch
from torch.overrides import handle_torch_function

from anyjax.torch.core import private
from anyjax.torch.core.lifting import value_in
from anyjax.torch.data_dependent.padded.split import held_in
from anyjax.torch.data_dependent.traced_index import GET

CHOOSE = {GET, torch.masked_select, torch.Tensor.masked_select}
NONZERO = {torch.nonzero, torch.Tensor.nonzero, torch.where}
ALL = slice(None)
_OPERATORS = """add radd sub rsub mul rmul truediv rtruediv rdiv floordiv mod pow rpow neg abs eq ne
lt le gt ge and or xor invert"""
OPERATORS = [f"__{x}__" for x in _OPERATORS.split()]
IN_PLACE = ["__iadd__", "__isub__", "__imul__", "__itruediv__"]


class Padded(torch.Tensor):
    """``rows`` [all, ...], the ``chosen`` [all] of which count; ``mask`` is the mask's array.

    ``x[mask].view(len(x), -1, width)`` has rows [batch, length, ...] and chosen [batch, length].
    Indices of rows among those that another mask chose have its array as ``among``.
    """

    __hash__ = object.__hash__
    __torch_dispatch__ = None

    @staticmethod
    def __new__(cls, rows: torch.Tensor, *_) -> Padded:
        """Makes a tensor to code that asks for ``isinstance``, without memory."""
        with private.DisableTorchFunction():
            return private.make_wrapper(cls, rows.shape, dtype=rows.dtype, device="cpu")

    def __init__(self, rows, chosen, mask, error: Callable[..., Exception], among: object = None):
        self.chosen, self.mask, self.error, self.among = chosen, mask, error, among
        self.shared = False  # whether its memory would be that of another one
        self.totals: list[torch.Tensor] = []
        self.rows = rows.masked_fill(~self.beside(rows), 0)

    def total(self) -> torch.Tensor:
        """Counts the rows that count, [], where it is called; ``totals`` are all such numbers."""
        self.totals.append(self.chosen.sum())
        return self.totals[-1]

    def beside(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns ``chosen`` in a shape that broadcasts with rows."""
        return self.chosen.reshape(*self.chosen.shape, *[1] * (tensor.dim() - self.chosen.dim()))

    def like(self, rows: torch.Tensor) -> Padded:
        """Returns other rows, chosen alike."""
        out = Padded(rows, self.chosen, self.mask, self.error)
        out.totals = self.totals
        return out

    def refuse(self, func: Any, *_, **__) -> NoReturn:
        """Raises DataDependent, naming the function."""
        name = func if isinstance(func, str) else func.__name__
        name = func.__self__.__name__ if name == "__get__" else name  # of an attribute
        raise self.error(f"{name} of x[mask]")

    def __len__(self, *_):
        self.refuse("the length")

    __iter__ = __contains__ = __bool__ = __int__ = __float__ = __index__ = __array__ = __len__
    data: Any = property(lambda self: self.refuse("data"))  # detach() is served

    @property
    def shape(self) -> Shape:
        """Returns one traced number, and sizes that are known."""
        if self.chosen.dim() > 1:
            self.refuse("the shape")
        out = Shape((self.total(), *self.rows.shape[1:]))
        out.padded = self
        return out

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        first = concerns(args, kwargs or {})
        assert first is not None
        first.refuse(func)


for _name in ("dtype", "device", "ndim", "layout", "requires_grad", "is_cuda", "is_sparse"):
    setattr(Padded, _name, property(attrgetter(f"rows.{_name}")))


def _operator(name: str) -> Callable[..., Any]:
    function = getattr(torch.Tensor, name)
    return lambda self, *args: handle_torch_function(function, (self,), self, *args)


for _name in (*OPERATORS, *IN_PLACE, "__matmul__"):  # torch's own take DataDependent, a TypeError,
    setattr(Padded, _name, _operator(_name))  # for an operand of another type


class Shape(tuple):
    """``x[mask].shape``: one traced number, and sizes that are known. It is compared with none: the
    comparison of two tuples asks for more than one condition.
    """

    padded: Padded
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> NoReturn:
        self.padded.refuse("the shape")

    __ne__ = __eq__


def leading_mask(index: object) -> tuple[torch.Tensor, tuple] | None:
    """Returns (the mask, the rest) of ``x[mask]`` and ``x[mask, :, 0]``; None for other indices."""
    mask, *rest = index if isinstance(index, tuple) and index else (index,)
    is_mask = isinstance(mask, torch.Tensor) and mask.dtype is torch.bool
    return (mask, (*rest,)) if is_mask and all(map(is_static, rest)) else None


def is_static(index: object) -> bool:
    """Returns whether a part of an index takes the same elements of each row."""
    return index is None or index is Ellipsis or isinstance(index, (slice, int))


def chosen(tensor: torch.Tensor, mask: torch.Tensor, error: Callable[..., Exception]) -> Padded:
    """Returns ``tensor[mask]``."""
    rows = tensor.reshape(mask.numel(), *tensor.shape[mask.dim() :])
    return Padded(rows, mask.reshape(-1).clone(), value_in(mask), error)


def nonzero(vector: torch.Tensor, error: Callable[..., Exception]) -> Padded:
    """Returns ``vector.nonzero()`` without its last dimension of one."""
    places = vector.bool().clone()
    return Padded(torch.arange(len(places)), places, value_in(vector), error)


def concerns(args: tuple, kwargs: Mapping[str, object]) -> Padded | None:
    """Returns the first one among a call's arguments."""
    return next((x for x in held_in((*args, *kwargs.values())) if isinstance(x, Padded)), None)
