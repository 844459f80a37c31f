"""Numbers that depend on arrays of sizes, computed in torch beside a trace.

Where torch.export asks for such a number, or for how many places a mask selects, it gets the
example's. All else stays symbolic, and arithmetic of these arrays is written in the source.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from anyjax.compare.recorders.torch_calls import watched
from anyjax.flax.codegen.graph.data_dependent import DataDependentSizes
from anyjax.flax.codegen.graph.private import FakeTensor, untraced

VALUE_READS = {
    "item",
    "tolist",
    "__int__",
    "__bool__",
    "__index__",
    "__float__",
    "__contains__",
    "equal",
}
COUNTING = {"nonzero", "argwhere", "masked_select", "unique", "unique_consecutive", "bincount"}
NEW = {"arange", "zeros", "ones", "full", "empty", "linspace", "tensor", "as_tensor", "eye"}
TAKES_SIZES = NEW | {"view", "reshape", "expand", "repeat", "split", "narrow", "new_zeros",
                     "new_ones", "new_full", "new_empty", "pad", "roll", "tile", "unflatten",
                     "meshgrid", "__getitem__", "__setitem__", "interpolate",
                     "split_with_sizes"}  # fmt: skip
Call = tuple[tuple, dict[str, Any]]  # positional arguments and keywords
MAX_ELEMENTS = 4096  # numbers of a new array that are computed beside the trace


@contextlib.contextmanager
def tracked_numbers(module: torch.nn.Module, values: dict[str, Any]) -> Iterator[None]:
    """Lets calls of a module know the numbers in these arguments."""
    numbers = KnownNumbers()
    signature = inspect.signature(module.forward)
    values = pytree.tree_map_only(torch.Tensor, torch.clone, values)  # the module may write to them

    def enter(_: str, args: tuple, kwargs: dict) -> None:
        bound = signature.bind(*args, **kwargs).arguments
        for name, value in values.items():
            for fake, real in zip(pytree.tree_leaves(bound[name]), pytree.tree_leaves(value)):
                numbers.record(fake, real)
        numbers.__enter__()

    with watched([("", module)], enter, lambda *_: numbers.__exit__(None, None, None)):
        yield


class KnownNumbers(TorchFunctionMode):
    """A mode that computes real arrays beside the traced ones whose numbers are known."""

    def __init__(self) -> None:
        super().__init__()
        self.twins: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def record(self, traced: object, real: object) -> None:
        if isinstance(traced, FakeTensor) and isinstance(real, torch.Tensor):
            self.twins[id(traced)] = traced, real

    def real(self, x: object) -> Any:
        """Returns the array with the numbers; None where they are not known."""
        if not isinstance(x, torch.Tensor):
            return None if isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool)) else x
        if id(x) in self.twins:
            return self.twins[id(x)][1]
        return None if isinstance(x, (FakeTensor, torch.nn.Parameter)) else x

    def __torch_function__(
        self, func: Callable, types: object, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        call = (args, kwargs or {})
        leaves = [x for x in _leaves(call) if x is not None]
        arrays = [x for x in leaves if isinstance(x, torch.Tensor)]
        name = getattr(func, "__name__", "")
        unknown_leaves = [x for x in leaves if self.real(x) is None]
        if unknown_leaves or not (arrays or name in NEW):
            return self._partly_known(func, name, call, arrays, unknown_leaves)
        traced = any(isinstance(x, FakeTensor) for x in arrays)
        if arrays and (name in VALUE_READS or self._has_counted_size(name, call) or not traced):
            return self._untraced(func, call)
        call = self._with_numbers(call) if name in TAKES_SIZES else call
        out = func(*call[0], **call[1])
        if not arrays and any(x.numel() > MAX_ELEMENTS for x in _arrays(out)):
            return out
        for traced, real in zip(_arrays(out), _arrays(self._untraced(func, call))):
            self.record(traced, real)
        return out

    def _untraced(self, func: Callable, call: Call) -> Any:
        """Calls a function outside of the trace."""
        args, kwargs = fx.node.map_aggregate(call, self.real)
        with untraced(), torch.no_grad():
            return func(*args, **kwargs)

    def _partly_known(
        self, func: Callable, name: str, call: Call, arrays: list, unknown_leaves: list
    ) -> Any:
        """Calls a function of arrays whose numbers are not all known."""
        if len(unknown_leaves) < len(arrays):
            if name in TAKES_SIZES:
                call = self._with_numbers(call)
            picked = self._repeat_interleave(*call) if name == "repeat_interleave" else None
            if picked is not None:
                return picked
            call = self._with_places(call) if name in ("__getitem__", "__setitem__") else call
        if arrays and _writes(name):
            self._forget(arrays[0])
        return func(*call[0], **call[1])

    def _forget(self, written: torch.Tensor) -> None:
        """Forgets the numbers of an array that unknown numbers are written to."""
        real = self.real(written)
        if real is None:
            return
        if not isinstance(written, FakeTensor):
            raise DataDependentSizes("an array that decides is written to")
        place = lambda x: x.untyped_storage().data_ptr()
        self.twins = {k: v for k, v in self.twins.items() if place(v[1]) != place(real)}

    def _with_numbers(self, call: Call) -> Any:
        """Replaces arrays of one integer by the number, so that it can be a size or a place."""

        def number(x: Any) -> Any:
            single = isinstance(x, torch.Tensor) and not x.ndim and not x.is_floating_point()
            real = self.real(x) if single and x.dtype != torch.bool else None
            return x if real is None else real.item()

        with untraced():
            return fx.node.map_aggregate(call, number)

    def _has_counted_size(self, name: str, call: Call) -> bool:
        """Returns whether the arrays' numbers decide the size of the result."""
        args, kwargs = call
        selects = name == "__getitem__" and any(x.dtype == torch.bool for x in _arrays(args[1:]))
        lists_places = name == "where" and len(args) + len(kwargs) == 1
        repeats = name == "repeat_interleave" and bool(_arrays((args[1:], kwargs)))
        return name in COUNTING or selects or lists_places or repeats

    def _with_places(self, call: Call) -> Any:
        """Replaces known masks by the places that they select."""
        (x, index, *rest), kwargs = call
        indices = index if isinstance(index, tuple) else (index,)
        selected: list[Any] = []
        for index_part in indices:
            mask = isinstance(index_part, torch.Tensor) and index_part.dtype == torch.bool
            real = self.real(index_part) if mask else None
            with untraced():
                selected += [index_part] if real is None else real.nonzero().unbind(1)
        return (x, tuple(selected), *rest), kwargs

    def _repeat_interleave(self, args: tuple, kwargs: dict) -> Any:
        """Computes ``repeat_interleave`` with known repeats as ``index_select``."""
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


def _arrays(value: object) -> list:
    return [x for x in _leaves(value) if isinstance(x, torch.Tensor)]


def _leaves(value: object) -> list:
    """Returns all parts of a value, those of slices included."""
    leaves: list = []
    fx.node.map_aggregate(value, leaves.append)
    return leaves
