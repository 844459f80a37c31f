"""Functions that may return an argument or a view of one, in a form that functionalization follows.

It takes composite operators as a whole, and what they return is new to it: a later write to that
would not reach the argument. A test looks for such functions in all of torch's samples.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch.nn import functional as F

aten = torch.ops.aten


def dropout(training: bool) -> Callable:
    """Returns a dropout function whose own default is ``training``: the input where nothing is
    dropped.
    """

    def form(original: Callable, *args, **kwargs) -> Any:
        arguments = dict(zip(("input", "p", "training"), args)) | kwargs
        drops = (
            arguments.get("train", arguments.get("training", training)) and arguments.get("p") != 0
        )
        valid = 0 <= arguments.get("p", 0.5) <= 1
        return original(*args, **kwargs) if drops or not valid else arguments["input"]

    return form


def einsum(original: Callable, equation, *operands) -> Any:
    """Of one operand it may be a permutation or a diagonal."""
    every = operands[0] if len(operands) == 1 else operands
    if isinstance(every, torch.Tensor) or len(every) == 1:
        first = every if isinstance(every, torch.Tensor) else every[0]
        if isinstance(equation, str):
            return aten.einsum.default.decompose(equation, [first])
    return original(equation, *operands)


def listed(op: Any) -> Callable:
    """Returns a composite operator of a list, by its parts."""

    def form(original: Callable, *tensors, **kwargs) -> Any:
        every = tensors[0] if isinstance(tensors[0], (list, tuple)) else tensors
        return tuple(op.decompose([*every], **kwargs))

    return form


def one_or_more(op: Any) -> Callable:
    """``atleast_1d`` and its like: of each tensor."""

    def form(original: Callable, *tensors) -> Any:
        every = tensors[0] if isinstance(tensors[0], (list, tuple)) else tensors
        out = tuple(op.decompose(x) for x in every)
        return out[0] if len(tensors) == 1 and every is tensors else out

    return form


def meshgrid(original: Callable, *tensors, indexing: str | None = None) -> Any:
    """Expanded views of the vectors."""
    every = tensors[0] if isinstance(tensors[0], (list, tuple)) else tensors
    return tuple(aten.meshgrid.indexing.decompose([*every], indexing=indexing or "ij"))


def cartesian_prod(original: Callable, *tensors) -> Any:
    """Of one vector it is that vector."""
    return tensors[0].view(-1) if len(tensors) == 1 else original(*tensors)


def conj_physical(original: Callable, self) -> Any:
    """Returns a real tensor itself."""
    return original(self) if self.is_complex() else self


def to_dense(original: Callable, self, dtype=None, **kwargs) -> Any:
    """Returns a dense tensor itself."""
    is_alias = self.layout is torch.strided and dtype in (None, self.dtype)
    return self if is_alias else original(self, dtype, **kwargs)


FORMS: dict[str, Callable] = {
    **dict.fromkeys(("dropout", "feature_dropout"), dropout(True)),
    **dict.fromkeys(("dropout1d", "dropout2d", "dropout3d"), dropout(True)),
    **dict.fromkeys(("alpha_dropout", "feature_alpha_dropout"), dropout(False)),
    "atleast_1d": one_or_more(aten.atleast_1d.default),
    "atleast_2d": one_or_more(aten.atleast_2d.default),
    "atleast_3d": one_or_more(aten.atleast_3d.default),
    "broadcast_tensors": listed(aten.broadcast_tensors.default),
    "cartesian_prod": cartesian_prod,
    "conj_physical": conj_physical,
    "einsum": einsum,
    "meshgrid": meshgrid,
    "sum_to_size": lambda original, self, *size: aten.sum_to_size.default.decompose(
        self, size[0] if isinstance(size[0], (list, tuple)) else size
    ),
    "to_dense": to_dense,
    "type_as": lambda original, self, other: self.to(other.dtype),
    "unsafe_chunk": lambda original, *args, **kwargs: torch.chunk(*args, **kwargs),
    "unsafe_split": lambda original, *args, **kwargs: torch.split(*args, **kwargs),
    "unsafe_split_with_sizes": lambda original, *args, **kwargs: torch.split(*args, **kwargs),
}


def _following(original: Callable, form: Callable) -> Callable:
    return wraps(original)(lambda *args, **kwargs: form(original, *args, **kwargs))


FOLLOWED: dict[Callable, Callable] = {
    function: _following(function, form)
    for name, form in FORMS.items()
    for home in (torch, torch.Tensor, F)
    if (function := getattr(home, name, None)) is not None
}
