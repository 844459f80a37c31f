"""``x[mask]`` where only the program knows how many rows that is: all rows, of which some count.

What works on each row by itself is computed for all of them; sums, means and losses take those that
count; ``y[mask] = ...`` puts them back. Between two functions the other rows are 0, and no gradient
passes through them, so nothing of them reaches a result. How many there are is a traced number;
what needs it as a Python one raises DataDependent. See padded/functions.py for the functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NoReturn

import torch
from torch.overrides import handle_torch_function

from tojax.torch.core import private
from tojax.torch.core.lifting import value_in
from tojax.torch.data_dependent.padded.split import held_in
from tojax.torch.data_dependent.traced_index import GET

count = private.writes_so_far
CHOOSE = {GET, torch.masked_select, torch.Tensor.masked_select}

# Names of functions of each number.
FUNCTIONS = """abs acos asin atan atan2 add sub mul div true_divide floor_divide remainder fmod pow
neg exp exp2 expm1 log log2 log10 log1p logaddexp sqrt rsqrt square sin cos tan sinh cosh tanh erf
erfc reciprocal sign floor ceil round trunc frac clamp clamp_min clamp_max clip minimum maximum
where eq ne lt le gt ge logical_and logical_or logical_not logical_xor bitwise_and bitwise_or
bitwise_not bitwise_xor isnan isinf isfinite nan_to_num lerp addcmul addcdiv sigmoid relu relu6 gelu
silu elu celu selu leaky_relu softplus softsign hardtanh hardsigmoid hardswish mish logsigmoid
zeros_like ones_like full_like clone masked_fill"""
DUNDERS = """add radd sub rsub mul rmul truediv rtruediv rdiv floordiv mod pow rpow neg abs eq ne
lt le gt ge and or xor invert"""
ELEMENTWISE = {*FUNCTIONS.split(), *(f"__{x}__" for x in DUNDERS.split())}
IN_PLACE = {"__iadd__", "__isub__", "__imul__", "__itruediv__"}
PLAIN = {"dtype", "device", "ndim", "layout", "requires_grad", "is_cuda", "is_sparse"}


class Padded(torch.Tensor):
    """``rows`` [all, ...], the ``chosen`` [all] of which count; ``mask`` is the mask's array."""

    __hash__ = object.__hash__
    serves: ClassVar[dict[str, Callable]] = {}  # functions of its own kind by name

    @staticmethod
    def __new__(cls, rows, *_):
        """A tensor to code that asks for ``isinstance``, without memory."""
        with private.DisableTorchFunction():
            return private.make_wrapper(cls, rows.shape, dtype=rows.dtype, device="cpu")

    def __init__(self, rows, chosen, mask, error: Callable[..., Exception]):
        self.chosen, self.mask, self.error = chosen, mask, error
        self.shared = False  # whether its memory would be that of another one
        self.totals: list[torch.Tensor] = []
        self.rows = rows.masked_fill(~self.beside(rows), 0)

    def total(self) -> torch.Tensor:
        """How many rows count, [], computed where it is asked for; ``totals`` are all of them."""
        self.totals.append(self.chosen.sum())
        return self.totals[-1]

    def beside(self, tensor: torch.Tensor) -> torch.Tensor:
        """``chosen`` in a shape that broadcasts with rows."""
        return self.chosen.reshape(-1, *[1] * (tensor.dim() - 1))

    def like(self, rows: torch.Tensor, kind: type[Padded] | None = None) -> Padded:
        """Other rows, chosen alike."""
        out = (kind or Padded)(rows, self.chosen, self.mask, self.error)
        out.totals = self.totals
        return out

    def refuse(self, func: Any, *_, **__) -> NoReturn:
        """Raises DataDependent, naming what was asked."""
        name = func if isinstance(func, str) else getattr(func, "__name__", "this use")
        raise self.error(f"{name} of x[mask]")

    def __len__(self, *_):
        self.refuse("the length")

    __iter__ = __contains__ = __bool__ = __int__ = __float__ = __index__ = __array__ = __len__

    @property
    def shape(self) -> Shape:
        """One traced number, and sizes that are known."""
        return Shape(self)

    @property
    def T(self):
        """Of no use."""
        return self.refuse("T")

    @property
    def data(self):
        """As detach() has it, which is a function."""
        return self.refuse("data")

    __torch_dispatch__ = None

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        next(x for x in held_in((*args, *(kwargs or {}).values())) if type(x) is cls).refuse(func)


def _plain(name: str) -> property:
    return property(lambda self: getattr(self.rows, name))


for _name in PLAIN:
    setattr(Padded, _name, _plain(_name))


def _operator(name: str) -> Callable:
    function = getattr(torch.Tensor, name)
    return lambda self, *args: handle_torch_function(function, (self,), self, *args)


for _name in {x for x in ELEMENTWISE if x[0] == "_"} | IN_PLACE:
    setattr(Padded, _name, _operator(_name))
for _name in ("__getitem__", "__setitem__", "__matmul__"):
    setattr(Padded, _name, _operator(_name))


class Shape:
    """``x[mask].shape``: one traced number, and sizes that are known. It is compared with none: the
    comparison of two tuples asks for more than one condition.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, one: Padded):
        if type(one) is Grouped:
            one.refuse("the shape")
        self.one = one
        self.sizes = (one.total(), *one.rows.shape[1:])

    def __getitem__(self, index: Any) -> Any:
        item = self.sizes[index]
        holds_count = isinstance(item, tuple) and any(x is self.sizes[0] for x in item)
        return self.refuse() if holds_count else item

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator:
        return iter(self.sizes)

    def refuse(self, *_) -> NoReturn:
        """Raises DataDependent."""
        self.one.refuse("the shape")

    __eq__ = __ne__ = refuse


class Grouped(Padded):
    """``x[mask].view(len(x), -1, width)``: ``rows`` [batch, length, ...] of which the ``chosen``
    [batch, length] count, as many of each element of the batch.

    How many that is only the program knows, but not which is the last of each, ``[:, -1]``.
    Elements with different numbers of rows, or too few, give NaN: a compiled program cannot raise.
    """

    def beside(self, tensor: torch.Tensor) -> torch.Tensor:
        """``chosen`` in a shape that broadcasts with rows."""
        return self.chosen.reshape(*self.chosen.shape, *[1] * (tensor.dim() - 2))

    def __getitem__(self, index: Any) -> torch.Tensor:
        batch, place, *rest = index if isinstance(index, tuple) and index[1:] else (index, None)
        all_rows = all(isinstance(x, slice) and x == slice(None) for x in (batch, *rest))
        if not all_rows or type(place) is not int or not self.rows.is_floating_point():
            self.refuse("this index")
        return self.at(place)

    def at(self, place: int) -> torch.Tensor:
        """[batch, ...]: the chosen row at this place of each element, from behind if negative."""
        counts, ranks = self.chosen.sum(1), self.chosen.cumsum(1) - 1
        rank = counts[:, None] + place if place < 0 else place
        chosen = self.chosen & (ranks == rank)
        row = self.rows[torch.arange(len(chosen)), chosen.int().argmax(1)]
        alike = (counts == counts[0]) & (counts > (~place if place < 0 else place))
        return row.masked_fill(~alike.all(), float("nan"))


def leading(index: Any) -> torch.Tensor | None:
    """The mask of ``x[mask]``, ``x[mask, :]`` and ``x[mask, ...]``; None for other indices."""
    mask, *rest = index if isinstance(index, tuple) and index else (index,)
    all_columns = all(x is Ellipsis or (isinstance(x, slice) and x == slice(None)) for x in rest)
    return (
        mask
        if isinstance(mask, torch.Tensor) and mask.dtype is torch.bool and all_columns
        else None
    )


def mask_first(index: Any) -> tuple[torch.Tensor, tuple] | None:
    """(the mask, the rest) of ``x[mask, None]`` and ``x[mask, :, 0]``; None for other indices."""
    mask, *rest = index if isinstance(index, tuple) and index else (index,)
    is_static = all(x is None or isinstance(x, (slice, int)) for x in rest)
    if (
        not rest
        or not is_static
        or not isinstance(mask, torch.Tensor)
        or mask.dtype is not torch.bool
    ):
        return None
    return mask, (*rest,)


def chosen(tensor: torch.Tensor, mask: torch.Tensor, error: Callable[..., Exception]) -> Padded:
    """``tensor[mask]``."""
    rows = tensor.reshape(mask.numel(), *tensor.shape[mask.dim() :])
    return Padded(rows, mask.reshape(-1).clone(), array(mask), error)


def array(mask: torch.Tensor) -> Any:
    """Returns the array of the mask now: later writes give it another one."""
    return value_in(mask)


def concerns(args: tuple, kwargs: dict[str, Any]) -> Padded | None:
    """The first one among a call's arguments."""
    return next((x for x in held_in((*args, *kwargs.values())) if isinstance(x, Padded)), None)
