"""A traced number where torch's functions take one of Python's, and only values follow from it.

torch would read it from memory, and no gradient comes back through it; ``linspace`` is among
them for a symbolic number of steps, which torch takes from Python alone. Where a size follows
(``torch.arange(n)``) it has to be known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from anyjax.torch.core.lifting import inner
from anyjax.torch.core.tensor import JaxTensor

aten = torch.ops.aten


def _default(value: torch.Tensor) -> torch.dtype:
    """Returns the dtype that a Python number of this kind has."""
    if value.is_floating_point():
        return torch.get_default_dtype()
    return value.dtype if value.is_complex() or value.dtype is torch.bool else torch.int64


def full(size, fill_value, *, dtype=None, device=None, layout=None, names=None):
    """Copies, which may be written to."""
    size = (size,) if isinstance(size, int) else size
    return fill_value.to(dtype or _default(fill_value)).expand(size).clone()


def full_like(input, fill_value, *, dtype=None, **kwargs):
    """``full_like``, by operators of tensors."""
    return full(input.shape, fill_value, dtype=dtype or input.dtype)


def scalar_tensor(s, *, dtype=None, **kwargs):
    """``scalar_tensor``, by operators of tensors."""
    return full((), s, dtype=dtype or torch.get_default_dtype())


def scatter(input, dim, index, src=None, *, value=None):
    """``scatter``, by operators of tensors."""
    src = value if src is None else src
    return aten.scatter.src(input, dim, index, src.to(input.dtype).expand(index.shape))


def scatter_(input, *args, **kwargs):
    """``scatter_``, by operators of tensors."""
    return input.copy_(scatter(input, *args, **kwargs))


def pad(input, pad, mode="constant", value=None):
    """``pad``, by operators of tensors."""
    inside = F.pad(torch.ones_like(input, dtype=torch.bool), pad)
    return torch.where(inside, F.pad(input, pad), value.to(input.dtype))


def leaky_relu(input, negative_slope=0.01, inplace=False):
    """``leaky_relu``, by operators of tensors."""
    out = torch.where(input > 0, input, input * negative_slope)
    return input.copy_(out) if inplace else out


def elu(input, alpha=1.0, inplace=False):
    """``elu``, by operators of tensors."""
    out = torch.where(input > 0, input, alpha * torch.expm1(torch.clamp(input, max=0)))
    return input.copy_(out) if inplace else out


def threshold(input, threshold, value, inplace=False):
    """``threshold``, by operators of tensors."""
    out = torch.where(input > threshold, input, torch.as_tensor(value, dtype=input.dtype))
    return input.copy_(out) if inplace else out


def hardshrink(input, lambd=0.5):
    """``hardshrink``, by operators of tensors."""
    return torch.where(input.abs() > lambd, input, 0)


def softshrink(input, lambd=0.5):
    """``softshrink``, by operators of tensors."""
    return input.sign() * torch.relu(input.abs() - lambd)


def linspace(start, end, steps, *, dtype=None, **kwargs):
    """``linspace`` of as many numbers as a symbolic size says, counted from both ends."""
    dtype = dtype or torch.get_default_dtype()
    if not dtype.is_floating_point:
        return torch.linspace(start, end, int(steps), dtype=dtype)
    at = torch.arange(steps, dtype=dtype)
    last = (torch.ones((), dtype=dtype) * (steps - 1)).clamp(min=1)
    step = (end - start) / last
    return torch.where(at < steps // 2, start + step * at, end - step * (last - at))


def product(multiply: Callable) -> Callable:
    """``addmm`` and its like: ``beta * input + alpha * multiply(first, second)``."""

    def form(input, first, second, *, beta=1, alpha=1):
        return beta * input + alpha * multiply(first, second)

    return form


def scaled(name: str) -> Callable:
    """``x.add_(y, alpha=a)`` and its like (the rate of an optimizer whose schedule changes it)."""

    def form(input, first, *rest, alpha=1, value=1):
        return getattr(torch.Tensor, name)(input, first * alpha * value, *rest)

    return form


FORMS: dict[str, Callable] = {
    "full": full,
    "full_like": full_like,
    "new_full": lambda self, size, fill_value, *, dtype=None, **kwargs: full(
        size, fill_value, dtype=dtype or self.dtype
    ),
    "scalar_tensor": scalar_tensor,
    "scatter": scatter,
    "scatter_": scatter_,
    "pad": pad,
    "leaky_relu": leaky_relu,
    "elu": elu,
    "threshold": threshold,
    "hardshrink": hardshrink,
    "softshrink": softshrink,
    "linspace": linspace,
    "addmm": product(torch.matmul),
    "addmv": product(torch.matmul),
    "addr": product(torch.outer),
    "baddbmm": product(torch.matmul),
    "addbmm": product(lambda first, second: torch.matmul(first, second).sum(0)),
    **{
        name + end: scaled(name + end)
        for name in ("add", "sub", "addcmul", "addcdiv")
        for end in ("", "_")
    },
}
# Where in the call numbers stand; in all others tensors may be meant.
NUMBERS = {
    "full": (1, "fill_value"),
    "full_like": (1, "fill_value"),
    "new_full": (2, "fill_value"),
    "scalar_tensor": (0, "s"),
    "scatter": (3, "value"),
    "scatter_": (3, "value"),
    "pad": (3, "value"),
    "leaky_relu": (1, "negative_slope"),
    "elu": (1, "alpha"),
    "threshold": (1, 2, "threshold", "value"),
    "hardshrink": (1, "lambd"),
    "softshrink": (1, "lambd"),
    "linspace": (2, "steps"),
}
NUMBERS |= dict.fromkeys(FORMS.keys() - NUMBERS.keys(), ("beta", "alpha", "value"))
FUNCTIONS = {
    function: name
    for name in FORMS
    for home in (torch, torch.Tensor, F)
    if (function := getattr(home, name, None)) is not None
}


def serve(mode, func, args, kwargs) -> Any:
    """Returns the form of a function whose number is traced; NotImplemented where it is not."""
    name = FUNCTIONS[func]
    is_number = lambda place, x: not x.dim() or (isinstance(place, str) and x.numel() == 1)
    ours = lambda x: isinstance(x, torch.Tensor) and isinstance(inner(x), JaxTensor)
    number = lambda place, x: place in NUMBERS[name] and ours(x) and is_number(place, x)
    symbol = lambda place, x: place in NUMBERS[name] and isinstance(x, torch.SymInt)
    arguments = *enumerate(args), *kwargs.items()
    if not any(number(*pair) or (name == "linspace" and symbol(*pair)) for pair in arguments):
        return NotImplemented
    scalar = lambda place, x: x.detach().reshape(()) if number(place, x) else x
    with mode:
        args = tuple(scalar(i, x) for i, x in enumerate(args))
        return FORMS[name](*args, **{k: scalar(k, x) for k, x in kwargs.items()})
