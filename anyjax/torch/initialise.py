"""The initialisers of torch modules, traced: ``reset_parameters``, transformers' own, and what a
constructor does. Each draw takes a key; torch's generator is not touched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import torch

from anyjax import trees
from anyjax.errors import WrongArguments
from anyjax.source import Arrays
from anyjax.torch.core.lifting import array_of
from anyjax.torch.core.private import LOADED, RESET
from anyjax.torch.engine.session import LOCK, tracing
from anyjax.torch.objects.functions import Function
from anyjax.torch.state.uncarried import Uncarried

TorchSource: TypeAlias = Any  # of the module that imports this one


def initial(
    source: TorchSource,
    params: Arrays,
    state: Arrays,
    rng: jax.Array,
    build: Callable[[], torch.nn.Module] | None = None,
) -> dict[str, jax.Array]:
    """Returns what the initialisers of the module, or of a new one that ``build`` makes, draw."""
    if build:
        return built(source, {**params, **state}, rng, build)
    return reinitialised(source, params, state, rng)


def reset(module: torch.nn.Module) -> None:
    """Runs the initialisers of a module, children first, as constructors do."""
    if hasattr(module, "initialize_weights") and hasattr(module, "config"):  # of transformers
        for submodule in module.modules():
            vars(submodule).pop(LOADED, None)
        module.initialize_weights()
        return
    for child in module.children():
        reset(child)
    for name in RESET:
        initialise = getattr(module, name, None)
        if callable(initialise):
            initialise()
            return


def reinitialised(
    source: TorchSource, params: Arrays, state: Arrays, rng: jax.Array
) -> dict[str, jax.Array]:
    """Returns the arrays that the initialisers of the module write, by name."""
    code, inputs = source.code, ("the parameters", trees.STATE)
    with LOCK, tracing(rng, inputs) as trace:
        tensors, _ = source._tensors(trace, params, state, {})
        filled = source.slots.filled(tensors, source.training, Uncarried())
        with filled as read_state, torch.no_grad():
            seen: set[str] = set()
            for holder, attribute, name in source.slots.places:
                if name in seen:  # tied when both had drawn: the draw of its first place stays
                    holder[attribute] = tensors[name].clone()
                seen.add(name)
            for module in code.children() if isinstance(code, Function) else (code,):
                reset(module)
            return dict(read_state())


def built(
    source: TorchSource, like: Arrays, rng: jax.Array, build: Callable[[], torch.nn.Module]
) -> dict[str, jax.Array]:
    """Returns the arrays of a module that ``build`` makes, by name, in the dtypes of ``like``.

    Raises:
      WrongArguments: it lacks params of the source's module, or has them in other shapes.
    """
    with LOCK, tracing(rng, ()):
        module = build()
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        arrays = {k: array_of(x).astype(like[k].dtype) for k, x in tensors.items() if k in like}
    fits = lambda k: k in arrays and arrays[k].shape == like[k].shape
    if wrong := [k for k in source.slots.params if not fits(k)]:
        raise WrongArguments(
            f"build makes another module than {source.name}: {', '.join(wrong[:9])} differ",
            why="arrays take the places of model.params by name",
            do="give what made the module: model.init(rng, build=lambda: Net(width=64))",
        )
    return arrays
