"""Numbers that follow from arrays of sizes, computed beside a trace.

Where torch.export asks for such a number, or for how many numbers a mask selects, it gets the
example's. All else stays symbolic, and arithmetic of these arrays stands in the source.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from tojax.flax.codegen.graph.data_dependent import Undecided
from tojax.flax.codegen.graph.private import FakeTensor, untraced

ASKS = {"item", "tolist", "__int__", "__bool__", "__index__", "__float__", "__contains__", "equal"}
COUNTS = {"nonzero", "argwhere", "masked_select", "unique", "unique_consecutive", "bincount"}
NEW = {"arange", "zeros", "ones", "full", "empty", "linspace", "tensor", "as_tensor", "eye"}
SIZED = NEW | {"view", "reshape", "expand", "repeat", "split", "narrow", "new_zeros", "new_ones",
               "new_full", "new_empty", "pad", "roll", "tile", "unflatten", "meshgrid",
               "__getitem__", "__setitem__", "interpolate", "split_with_sizes"}  # fmt: skip
MOST = 4096  # numbers of a new array that are computed beside the trace


@contextlib.contextmanager
def computed(module: torch.nn.Module, values: dict[str, Any]) -> Iterator[None]:
    """While this is open, calls of a module know the numbers in these arguments."""
    known = Known()
    signature = inspect.signature(module.forward)
    values = pytree.tree_map_only(torch.Tensor, torch.clone, values)  # the module may write to it

    def enter(_: Any, args: Any, kwargs: Any) -> None:
        given = signature.bind(*args, **kwargs).arguments
        for name, value in values.items():
            for fake, real in zip(pytree.tree_leaves(given[name]), pytree.tree_leaves(value)):
                known.note(fake, real)
        known.__enter__()

    leave = lambda *_: known.__exit__(None, None, None)
    handles = [
        module.register_forward_pre_hook(enter, with_kwargs=True),
        module.register_forward_hook(leave, always_call=True),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class Known(TorchFunctionMode):
    """Keeps for each traced array whose numbers are known an array that has them."""

    def __init__(self) -> None:
        super().__init__()
        self.twins: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def note(self, traced: Any, real: Any) -> None:
        if isinstance(traced, FakeTensor) and isinstance(real, torch.Tensor):
            self.twins[id(traced)] = traced, real

    def real(self, x: Any) -> Any:
        """The array with the numbers; None where they are not known."""
        if not isinstance(x, torch.Tensor):
            return None if isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool)) else x
        if id(x) in self.twins:
            return self.twins[id(x)][1]
        return None if isinstance(x, (FakeTensor, torch.nn.Parameter)) else x

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = (args, kwargs or {})
        leaves = [x for x in _leaves(given) if x is not None]
        arrays = [x for x in leaves if isinstance(x, torch.Tensor)]
        name = getattr(func, "__name__", "")
        unknown = [x for x in leaves if self.real(x) is None]
        if unknown or not (arrays or name in NEW):
            return self._partly(func, name, given, arrays, unknown)
        if arrays and (name in ASKS or self._counts(name, given) or not _traced(arrays)):
            return self._beside(func, given)
        given = self._sized(given) if name in SIZED else given
        out = func(*given[0], **given[1])
        if not arrays and any(x.numel() > MOST for x in _arrays(out)):
            return out
        for traced, real in zip(_arrays(out), _arrays(self._beside(func, given))):
            self.note(traced, real)
        return out

    def _beside(self, func: Any, given: Any) -> Any:
        """What a function gives outside of the trace."""
        args, kwargs = _mapped(given, self.real)
        with untraced(), torch.no_grad():
            return func(*args, **kwargs)

    def _partly(self, func: Any, name: str, given: Any, arrays: list, unknown: list) -> Any:
        """A function of arrays whose numbers are not all known."""
        if len(unknown) < len(arrays):
            if name in SIZED:
                given = self._sized(given)
            if name == "repeat_interleave" and (again := self._repeated(*given)) is not None:
                return again
            given = self._selected(given) if name in ("__getitem__", "__setitem__") else given
        if arrays and _writes(name):
            self._forget(arrays[0])
        return func(*given[0], **given[1])

    def _forget(self, written: torch.Tensor) -> None:
        """What unknown numbers are written to is known no more."""
        real = self.real(written)
        if real is None:
            return
        if not isinstance(written, FakeTensor):
            raise Undecided("an array that decides is written to")
        place = lambda x: x.untyped_storage().data_ptr()
        self.twins = {k: v for k, v in self.twins.items() if place(v[1]) != place(real)}

    def _sized(self, given: Any) -> Any:
        """Arrays of one whole number as that number, of which sizes and places can be made."""

        def number(x: Any) -> Any:
            single = isinstance(x, torch.Tensor) and not x.ndim and not x.is_floating_point()
            real = self.real(x) if single and x.dtype != torch.bool else None
            return x if real is None else real.item()

        with untraced():
            return _mapped(given, number)

    def _counts(self, name: str, given: Any) -> bool:
        """Whether the numbers tell how large the result is."""
        args, kwargs = given
        masks = name == "__getitem__" and any(x.dtype == torch.bool for x in _arrays(args[1:]))
        alone = name == "where" and len(args) + len(kwargs) == 1
        repeats = name == "repeat_interleave" and bool(_arrays((args[1:], kwargs)))
        return name in COUNTS or masks or alone or repeats

    def _selected(self, given: Any) -> Any:
        """Masks that are known as the places that they select."""
        (x, index, *rest), kwargs = given
        parts = index if isinstance(index, tuple) else (index,)
        found: list[Any] = []
        for part in parts:
            mask = isinstance(part, torch.Tensor) and part.dtype == torch.bool
            real = self.real(part) if mask else None
            with untraced():
                found += [part] if real is None else real.nonzero().unbind(1)
        return (x, tuple(found), *rest), kwargs

    def _repeated(self, args: Any, kwargs: Any) -> Any:
        """``repeat_interleave`` by numbers that are known, as picking."""
        x, repeats, dim = (*args, None, None)[:3]
        repeats = kwargs.get("repeats", repeats)
        dim = kwargs.get("dim", dim)
        counts = self.real(repeats) if isinstance(repeats, torch.Tensor) else None
        if counts is None or dim is None or counts.numel() < 2:
            return None
        with untraced():
            rows = torch.arange(counts.numel()).repeat_interleave(counts)
        return x.index_select(dim, rows)


def _writes(name: str) -> bool:
    return name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))


def _traced(arrays: list) -> bool:
    return any(isinstance(x, FakeTensor) for x in arrays)


def _arrays(value: Any) -> list:
    return [x for x in _leaves(value) if isinstance(x, torch.Tensor)]


def _leaves(value: Any) -> list:
    """Its parts, those of slices included."""
    if isinstance(value, slice):
        return [value.start, value.stop, value.step]
    if isinstance(value, dict):
        return [x for part in value.values() for x in _leaves(part)]
    if isinstance(value, (tuple, list)):
        return [x for part in value for x in _leaves(part)]
    return [value]


def _mapped(value: Any, change: Any) -> Any:
    """The same with each part changed."""
    if isinstance(value, slice):
        return slice(*(_mapped(x, change) for x in (value.start, value.stop, value.step)))
    if isinstance(value, dict):
        return {k: _mapped(x, change) for k, x in value.items()}
    if isinstance(value, (tuple, list)):
        parts = [_mapped(x, change) for x in value]
        return parts if isinstance(value, list) else tuple(parts)
    return None if value is None else change(value)
