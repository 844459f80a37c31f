"""Rematerialization: intermediate results of layers are recomputed for the gradient."""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
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
      which: False for none, True for repeated layers, one of ``POLICIES``, or a regular expression
        of module paths.

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
    from anyjax.torch.engine.session import LOCK

    name = "layers" if which is True else str(which)
    choose, policy = POLICIES.get(name, (functools.partial(modules_matching, pattern=name), None))
    modules = choose(source.code)
    if not modules:
        raise WrongValue(
            f"remat={which!r} chooses no module of {source.name}",
            why="layers are members of a ModuleList or Sequential with modules inside of their own",
            do='give a regular expression of module paths, such as r"layers\\.\\d+"',
        )
    with LOCK, contextlib.ExitStack() as stack:
        for module in modules:
            module.forward = functools.partial(_computed_again, policy, module.forward)
            stack.callback(delattr, module, "forward")
        yield


def _computed_again(policy: Callable | None, forward: Callable, *args: Any, **kwargs: Any) -> Any:
    """Calls a module's forward under ``jax.checkpoint``; what it writes is written after it."""
    from anyjax.torch.control_flow.higher_order import computed_again

    args, kwargs = _without_caches((args, kwargs))
    return computed_again(forward, args, kwargs, policy)


def _without_caches(arguments: Any) -> Any:
    """Returns a layer's arguments without transformers' caches, as its own checkpointing has them:
    they would keep tensors of the part that is computed again.
    """
    if "transformers" not in sys.modules:
        return arguments
    from transformers import Cache

    args, kwargs = arguments
    replaced = lambda x: None if isinstance(x, Cache) else x
    kwargs = {k: False if k == "use_cache" else replaced(x) for k, x in kwargs.items()}
    return tuple(map(replaced, args)), kwargs


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
    return _outermost(module, lambda path, _: bool(re.fullmatch(pattern, path)))


def attention_modules(module: torch.nn.Module) -> list[Any]:
    """Returns the outermost modules inside of this one whose class is named after attention."""
    return _outermost(module, lambda _, member: "attention" in type(member).__name__.lower())


def _outermost(module: torch.nn.Module, chosen: Callable[[str, Any], bool]) -> list[Any]:
    paths = [p for p, member in module.named_modules() if p and chosen(p, member)]
    outer = [p for p in paths if not any(p.startswith(f"{q}.") for q in paths)]
    return [module.get_submodule(p) for p in outer]


# what a name computes again, and what of that is saved nevertheless
POLICIES: dict[str, tuple[Callable[[torch.nn.Module], list[Any]], Callable | None]] = {
    "layers": (repeated_layers, None),
    "attention": (attention_modules, None),
    "dots": (repeated_layers, jax.checkpoint_policies.dots_with_no_batch_dims_saveable),
}
