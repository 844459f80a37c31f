"""Rematerialization: intermediate results of layers are recomputed for the gradient."""

from __future__ import annotations

import contextlib
import functools
import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import jax

from anyjax.errors import Unsupported, WrongValue
from anyjax.jaxprs import keeping_barriers

if TYPE_CHECKING:
    import torch


@contextlib.contextmanager
def rematerialized(source: Any, which: bool | str) -> Iterator[None]:
    """Runs each chosen module under ``jax.checkpoint`` inside of the block.

    Args:
      source: the source of a Model from torch.
      which: False for none, True for repeated layers, or a regular expression of module paths.

    Raises:
      Unsupported: the model is not from torch.
      WrongValue: there is no such module.
    """
    if which is False:
        yield
        return
    if source.framework != "torch":
        raise Unsupported(
            f"remat of a model from {source.framework}",
            why="its layers are not known any more",
            do="roll it: anyjax.transforms.roll(model, ..., remat=True)",
        )
    from anyjax.torch.control_flow.higher_order import checkpoint
    from anyjax.torch.engine.session import LOCK

    modules = (
        repeated_layers(source.code) if which is True else modules_matching(source.code, str(which))
    )
    if not modules:
        raise WrongValue(
            f"remat={which!r} chooses no module of {source.name}",
            why="layers are members of a ModuleList or Sequential with modules inside of their own",
            do='give a regular expression of module paths, such as r"layers\\.\\d+"',
        )
    with LOCK, contextlib.ExitStack() as stack:
        for module in modules:
            module.forward = functools.partial(checkpoint, None, module.forward)
            stack.callback(delattr, module, "forward")
        yield


def compiler_options(array: jax.Array) -> dict[str, Any]:
    """Returns XLA's options for the devices of the array: on CPU barriers must be kept."""
    on_cpu = any(device.platform == "cpu" for device in array.devices())
    return keeping_barriers() if on_cpu else {}


def repeated_layers(module: torch.nn.Module) -> list[Any]:
    """Returns the outermost repeated layers: members of a ModuleList or Sequential that share their
    class with another member and contain modules.

    Example:
      >>> import torch
      >>> layer = lambda: torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
      >>> len(repeated_layers(torch.nn.Sequential(torch.nn.Linear(8, 8), layer(), layer())))
      2
    """
    from torch.nn import ModuleList, Sequential

    members = [*module.children()]
    layers = []
    if isinstance(module, (ModuleList, Sequential)):
        counts = Counter(map(type, members))
        layers = [m for m in members if counts[type(m)] > 1 and [*m.children()]]
    return layers + [inner for m in members if m not in layers for inner in repeated_layers(m)]


def modules_matching(module: torch.nn.Module, pattern: str) -> list[Any]:
    """Returns the outermost modules whose full path matches."""
    paths = [p for p, _ in module.named_modules() if p and re.fullmatch(pattern, p)]
    outer = [p for p in paths if not any(p.startswith(f"{q}.") for q in paths)]
    return [module.get_submodule(p) for p in outer]
