"""Layers whose intermediate results are computed again for the gradient, not kept until then."""

from __future__ import annotations

import contextlib
import functools
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax

from tojax.errors import Unsupported, WrongValue
from tojax.jaxprs import keeping_barriers


@contextlib.contextmanager
def layers(source: Any, which: bool | str) -> Iterator[None]:
    """Each of these modules runs under ``jax.checkpoint`` in here.

    Args:
      source: of a Model from torch.
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
            do="roll it: tojax.transforms.roll(model, ..., remat=True)",
        )
    from tojax.torch.control_flow.higher_order import checkpoint
    from tojax.torch.engine.session import LOCK

    chosen = repeated(source.code) if which is True else matching(source.code, str(which))
    if not chosen:
        raise WrongValue(
            f"remat={which!r} chooses no module of {source.name}",
            why="layers are members of a ModuleList or Sequential with modules inside of their own",
            do='give a regular expression of module paths, such as r"layers\\.\\d+"',
        )
    with LOCK, contextlib.ExitStack() as stack:
        for module in chosen:
            module.forward = functools.partial(checkpoint, None, module.forward)
            stack.callback(delattr, module, "forward")
        yield


def compiler_options(array: jax.Array) -> dict[str, Any]:
    """Returns what XLA has to be told where the array is."""
    on_cpu = any(device.platform == "cpu" for device in array.devices())
    return keeping_barriers() if on_cpu else {}


def repeated(module: Any) -> list[Any]:
    """Members of lists, of which several are of one class and have modules inside; not those inside
    of others.

    Example:
      >>> import torch
      >>> layer = lambda: torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
      >>> len(repeated(torch.nn.Sequential(torch.nn.Linear(8, 8), layer(), layer())))
      2
    """
    from torch.nn import ModuleList, Sequential

    members = [*module.children()]
    if isinstance(module, (ModuleList, Sequential)):
        counts = Counter(map(type, members))
        found = [m for m in members if counts[type(m)] > 1 and [*m.children()]]
    else:
        found = []
    rest = [m for m in members if m not in found]
    return found + [inner for m in rest for inner in repeated(m)]


def matching(module: Any, pattern: str) -> list[Any]:
    """Modules whose whole path matches; not those inside of others."""
    paths = [p for p, _ in module.named_modules() if p and re.fullmatch(pattern, p)]
    outer = [p for p in paths if not any(p.startswith(f"{q}.") for q in paths)]
    return [module.get_submodule(p) for p in outer]
