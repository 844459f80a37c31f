"""Private names of torch that writing source code needs."""

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
    """Returns a symbolic number before known replacements."""
    return size.node._expr


def by_example() -> Any:
    """Lets torch.export decide by the example's numbers where it has to."""
    return config.patch(
        fake_tensor_propagate_real_tensors=True,
        generate_fake_kernels_from_real_mismatches=True,
    )


@contextlib.contextmanager
def untraced() -> Iterator[None]:
    """Computes in torch as usual, inside of a trace as well."""
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        yield


@contextlib.contextmanager
def grouped_experts(module: torch.nn.Module) -> Iterator[bool]:
    """Writes transformers' experts as grouped products over all, not as a loop over those that are
    hit; yields whether there are any.
    """
    name = "_experts_implementation"
    configs = {
        id(x): x for submodule in module.modules() if (x := getattr(submodule, "config", None))
    }
    looping = [x for x in configs.values() if getattr(x, name, None) == "eager"]
    for expert_config in looping:
        setattr(expert_config, name, "grouped_mm")
    try:
        with parallel_experts(module) as split:
            yield bool(looping) or split
    finally:
        for expert_config in looping:
            setattr(expert_config, name, "eager")


@contextlib.contextmanager
def parallel_experts(module: torch.nn.Module) -> Iterator[bool]:
    """Does the same for experts that split their input by a list of counts, one product each."""
    experts = [x for x in module.modules() if type(x).__name__.endswith("ParallelExperts")]
    product = lambda expert, x, counts: torch.ops.transformers.grouped_mm_fallback(
        x, expert.weight.mT, counts.cumsum(0, dtype=torch.int32)
    )
    files = {x.__module__ for x in experts}

    def counted(tolist: Any) -> Any:
        """Counts that code of these files turns into a list stay an array."""
        inside = lambda: sys._getframe(2).f_globals.get("__name__") in files
        return lambda x: x if inside() else tolist(x)

    for expert in experts:
        expert.forward = functools.partial(product, expert)
    try:
        with contextlib.ExitStack() as stack:
            for cls in (x for x in (torch.Tensor, FakeTensor, FunctionalTensor) if experts):
                stack.enter_context(mock.patch.object(cls, "tolist", counted(cls.tolist)))
            yield bool(experts)
    finally:
        for expert in experts:
            del expert.forward


def masks_not_inspected() -> Any:
    """Keeps torch.nn's Transformers from testing whether a mask is causal: it is added as it is,
    with the same result.
    """
    is_causal_argument = lambda mask, is_causal=None, size=None: bool(is_causal)
    return mock.patch.object(
        torch.nn.modules.transformer, "_detect_is_causal_mask", is_causal_argument
    )


@contextlib.contextmanager
def restored_modes() -> Iterator[None]:
    """Closes modes of torch that are still open on exit: torch.export skips the closing hooks of a
    module that fails.
    """
    count = lambda: len(overrides._get_current_function_mode_stack())
    depth = count()
    try:
        yield
    finally:
        while count() > depth:
            overrides._pop_mode()


def not_saved(module: torch.nn.Module) -> set[str]:
    """Returns the names of the module's own buffers that its state dict leaves out: the set itself,
    which a buffer's new name has to reach.
    """
    return module._non_persistent_buffers_set
