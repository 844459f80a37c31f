"""TorchScript modules: what they hold lives in C++, and an error inside them comes out as text."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from anyjax.torch.core.modules import named_modules
from anyjax.torch.objects.contents import View, restore

FAILED = "failed in the TorchScript interpreter"


def modes(module: torch.nn.Module) -> tuple[bool, ...]:
    """Returns the training mode of every submodule; frozen ones have none."""
    return tuple(getattr(m, "training", False) for m in named_modules(module).values())


def set_modes(module: torch.nn.Module, training: tuple[bool, ...]) -> None:
    """Around ``train()``, which modules may override; TorchScript keeps the mode in C++."""
    for child, mode in zip(named_modules(module).values(), training):
        if not isinstance(child, torch.jit.ScriptModule):
            child.__dict__["training"] = mode
        elif hasattr(child, "training"):
            child.training = mode


def attributes(module: torch.nn.Module) -> dict[str, Any]:
    """Returns the attributes of a TorchScript module that hold tensors, besides parameters and
    buffers: recurrent layers have their weights in lists, too.
    """
    kind = module.__dict__.get("_concrete_type")
    if not isinstance(module, torch.jit.ScriptModule) or not kind:
        return {}
    names = set(kind.get_attributes())
    values = {n: module._c.getattr(n) for n in names if n not in module._parameters}
    holds = lambda value: any(isinstance(x, torch.Tensor) for x in tree_leaves(value))
    return {n: v for n, v in values.items() if n not in module._buffers and holds(v)}


def named(module: torch.nn.Module) -> dict[str, tuple[torch.nn.Module, str]]:
    """(submodule, attribute) of all such attributes by name."""
    return {
        f"{path}.{attribute}" if path else attribute: (child, attribute)
        for path, child in module.named_modules()
        for attribute in attributes(child)
    }


class Values(View):
    """The attributes of TorchScript modules that hold no tensors, by name; they live in C++."""


def values(module: torch.nn.Module) -> Values:
    """Returns those of a module and its submodules."""
    places: dict[str, tuple[torch.nn.Module, str]] = {}
    for path, child in module.named_modules():
        kind = child.__dict__.get("_concrete_type")
        if not isinstance(child, torch.jit.ScriptModule) or not kind:
            continue
        tensors = attributes(child)
        for name in {*kind.get_attributes()} - {"training", *tensors}:
            if name not in child._parameters and name not in child._buffers:
                places[f"{path}.{name}" if path else name] = child, name
    return Values(
        lambda: {place: child._c.getattr(name) for place, (child, name) in places.items()},
        lambda place, value: places[place][0]._c.setattr(places[place][1], value),
    )


@contextlib.contextmanager
def filled(
    module: torch.nn.Module,
    weights: Mapping[int, torch.Tensor],
    tensors: Mapping[str, torch.Tensor],
) -> Iterator[Values]:
    """Attributes that hold weights, given by their ``id``, hold those of the trace for a while, and
    those of these names these tensors. Yields the attributes that hold no tensors, which are as
    they were at the end.
    """
    places, numbers = named(module), values(module)
    content = dict(numbers)
    originals = [(child, name, child._c.getattr(name)) for child, name in places.values()]
    for place, (child, name, value) in zip(places, originals):
        filled_value = tree_map(lambda x: weights.get(id(x), x), value)
        child._c.setattr(name, tensors.get(place, filled_value))
    try:
        yield numbers
    finally:
        for child, name, value in originals:
            child._c.setattr(name, value)
        restore(numbers, content)
