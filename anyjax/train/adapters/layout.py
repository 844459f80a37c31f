"""The layout of an adapted matrix in its torch layer, which PEFT's files follow."""

from __future__ import annotations

from anyjax.source import Source

# Layers that PEFT adapts and whose weight is a matrix; the last two keep it as (in, out).
LAYERS = ("Linear", "Embedding", "Conv1D")


def layer_of(source: Source, place: str) -> str | None:
    """Returns which of ``LAYERS`` the module at a place is, None if it is none of them."""
    module = getattr(source, "module", None) if source.framework == "torch" else None
    try:
        layer = module.get_submodule(place)  # type: ignore[union-attr]
    except AttributeError:
        return None
    names = [cls.__name__ for cls in type(layer).__mro__]  # Conv1D is a class of transformers
    names = [getattr(layer, "original_name", ""), *names]  # of a scripted layer
    return next((kind for kind in LAYERS if kind in names), None)


def is_turned(source: Source, place: str) -> bool:
    """Returns True if the matrix is kept as (in, out), unlike in ``nn.Linear``.

    Example:
      >>> import torch
      >>> net = torch.nn.Sequential(torch.nn.Embedding(4, 2), torch.nn.Linear(2, 3))
      >>> source = anyjax.from_torch(net).source
      >>> is_turned(source, "0"), is_turned(source, "1")
      (True, False)
    """
    return layer_of(source, place) in ("Embedding", "Conv1D")


def places_sharing(source: Source, place: str) -> list[str]:
    """Returns the places of other layers with the same weight: an adapter changes them, too."""
    modules = dict(source.module.named_modules(remove_duplicate=False))
    weight = getattr(modules.get(place), "weight", None)
    same = lambda module: getattr(module, "weight", None) is weight is not None
    return [name for name, module in modules.items() if name != place and same(module)]
