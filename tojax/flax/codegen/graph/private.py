"""Private names of torch that source code is written with."""

import contextlib
import functools
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch import overrides
from torch._functorch import config
from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.utils._python_dispatch import _disable_current_modes


def symbol_of(size: torch.SymInt | torch.SymFloat | torch.SymBool) -> Any:
    """A symbolic number before what is known of it was put in its place."""
    return size.node._expr


def by_example() -> Any:
    """While this is open, torch.export decides by the example's numbers where it has to."""
    return config.patch(
        fake_tensor_propagate_real_tensors=True,
        generate_fake_kernels_from_real_mismatches=True,
    )


@contextlib.contextmanager
def untraced() -> Iterator[None]:
    """While this is open, torch computes as usual, inside of a trace as well."""
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        yield


@contextlib.contextmanager
def grouped_experts(module: torch.nn.Module) -> Iterator[bool]:
    """While this is open, experts of transformers that loop over those that are hit are grouped
    products over all of them; gives whether there are any.
    """
    name = "_experts_implementation"
    found = {id(x): x for part in module.modules() if (x := getattr(part, "config", None))}
    loops = [x for x in found.values() if getattr(x, name, None) == "eager"]
    for one in loops:
        setattr(one, name, "grouped_mm")
    try:
        with parallel_experts(module) as split:
            yield bool(loops) or split
    finally:
        for one in loops:
            setattr(one, name, "eager")


@contextlib.contextmanager
def parallel_experts(module: torch.nn.Module) -> Iterator[bool]:
    """The same for those that split what they are given by a list of counts, one product each."""
    parts = [x for x in module.modules() if type(x).__name__.endswith("ParallelExperts")]
    product = lambda part, x, counts: torch.ops.transformers.grouped_mm_fallback(
        x, part.weight.mT, counts.cumsum(0, dtype=torch.int32)
    )
    files = {x.__module__ for x in parts}

    def counted(tolist: Any) -> Any:
        """Counts that code of these files turns into a list stay an array."""
        inside = lambda: sys._getframe(2).f_globals.get("__name__") in files
        return lambda x: x if inside() else tolist(x)

    for part in parts:
        part.forward = functools.partial(product, part)
    try:
        with contextlib.ExitStack() as stack:
            for cls in (x for x in (torch.Tensor, FakeTensor, FunctionalTensor) if parts):
                stack.enter_context(mock.patch.object(cls, "tolist", counted(cls.tolist)))
            yield bool(parts)
    finally:
        for part in parts:
            del part.forward


def masks_in_full() -> Any:
    """While this is open, torch.nn's Transformers do not look whether a mask is the causal one:
    it is added as it is, which has the same values.
    """
    told = lambda mask, is_causal=None, size=None: bool(is_causal)
    return mock.patch.object(torch.nn.modules.transformer, "_detect_is_causal_mask", told)


@contextlib.contextmanager
def same_modes() -> Iterator[None]:
    """After this, no more modes of torch are open than before. Where a module fails, torch.export
    runs none of the hooks that would close what a hook has opened.
    """
    count = lambda: len(overrides._get_current_function_mode_stack())
    before = count()
    try:
        yield
    finally:
        while count() > before:
            overrides._pop_mode()
