"""Guidance scales as arrays: numbers of the program, which pipelines compare with 1."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from anyjax.errors import Unsupported
from anyjax.torch.core.lifting import is_traced
from anyjax.typing import PyTree

SCALES = ("guidance_scale", "cfg_scale")  # ends of names


class Scale:
    """A scale whose value only the program knows: guidance is on, and computes with the tensor."""

    def __init__(self, tensor: torch.Tensor):
        self.tensor = tensor

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        tensor = lambda x: x.tensor if isinstance(x, cls) else x
        if function is torch.full:  # of a number
            size, value = args[0], tensor(args[1] if len(args) > 1 else kwargs["fill_value"])
            return value.to((kwargs or {}).get("dtype") or value.dtype).expand(size)
        return function(*map(tensor, args), **{k: tensor(x) for k, x in (kwargs or {}).items()})

    def __gt__(self, bound: float) -> bool:
        return True  # of guidance, where it is switched on: guidance_scale > 1

    __ge__ = __gt__

    def __lt__(self, bound: float) -> bool:
        return False

    __le__ = __lt__

    def __float__(self) -> float:
        raise Unsupported(
            "a guidance scale as an array",
            why="this pipeline makes a Python number of it",
            do="give a Python float; the program is compiled once for each",
        )


def _computing(function: Callable[[Any, Any], Any], is_reflected: bool) -> Callable[..., Any]:
    def computed(self: Scale, number: Any) -> Any:
        return function(number, self.tensor) if is_reflected else function(self.tensor, number)

    return computed


for _name in ("add", "sub", "mul", "truediv"):
    for _is_reflected in (False, True):
        _computed = _computing(getattr(operator, _name), _is_reflected)
        setattr(Scale, f"__{'r' * _is_reflected}{_name}__", _computed)


def scales(options: dict[str, PyTree]) -> dict[str, Any]:
    """Returns the options with traced guidance scales as numbers that can be compared."""
    is_scale = lambda k, x: k.endswith(SCALES) and isinstance(x, torch.Tensor) and is_traced(x)
    return {k: Scale(x) if is_scale(k, x) else x for k, x in options.items()}
