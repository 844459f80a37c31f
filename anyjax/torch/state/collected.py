"""Tensors that forward hooks put into dicts and lists of the caller's: they have no values.

module.layer.register_forward_hook(lambda m, args, out: activations.append(out))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from anyjax import warn_once
from anyjax.errors import StateDropped
from anyjax.torch.core import private
from anyjax.torch.state.attribute_tree import Walk
from anyjax.torch.state.closures import captured


def warn_collected(module: torch.nn.Module) -> None:
    """Warns once, at the end of a trace, where a hook of a submodule left a tensor of the trace."""
    hooked = [m for m in module.modules() if m._forward_hooks or m._forward_pre_hooks]
    if not hooked:
        return
    module_ids = {id(m) for m in module.modules()}  # what modules hold is state
    for child in hooked:
        for hook in (*child._forward_hooks.values(), *child._forward_pre_hooks.values()):
            if (name := next(_collected(hook, module_ids), None)) is not None:
                warn_once.warn(
                    f"a forward hook of {type(child).__name__}{_place(hook)} leaves tensors in "
                    f"{name}: they belong to the traced program and have no values, and a program "
                    "that is compiled already does not run the hook. Return them from forward",
                    StateDropped,
                )


def _collected(hook: Callable, module_ids: set[int]) -> Iterator[str]:
    """Names of tensors of a trace that can be reached from what the hook refers to."""
    names: list[str] = []

    def leaf(name: str, value: object) -> Any:
        if isinstance(value, torch.Tensor) and private.is_functional(value):
            names.append(name)
        return value

    walk = Walk(leaf, lambda name, holder, loose: None, {*module_ids})
    for name, (holder, key) in captured(hook):
        walk(name, holder[key])
    return iter(names)


def _place(hook: Callable) -> str:
    code = getattr(getattr(hook, "__func__", hook), "__code__", None)
    return f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
