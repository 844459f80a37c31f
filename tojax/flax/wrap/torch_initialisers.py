"""The initialisers of torch modules: ``reset_parameters`` and transformers' own."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from tojax.flax.wrap.names import OF_BATCHES
from tojax.flax.wrap.private import LOADED, RESET


def rerun(source: Any, seed: int) -> dict[str, np.ndarray]:
    """The tensors that initialisers make from a seed, by name; the module stays as it is.

    A tensor that no initialiser writes is left out. They write to copies of parameters and of
    statistics of batches that hold no value of a model (NaN, -1), which shows what they wrote;
    other buffers keep their values.
    """
    import torch

    empty = {name: _copy(name, tensor) for name, tensor in source.slots.tensors.items()}
    memo: dict[int, Any] = {id(t): empty[name] for name, t in source.slots.tensors.items()}
    before = {name: t.detach().clone() for name, t in empty.items()}
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        for module in _roots(source.module):
            reset(copy.deepcopy(module, memo))
    return {
        name: _numpy(tensor)
        for name, tensor in empty.items()
        if not torch.equal(_bits(tensor), _bits(before[name])) and not tensor.isnan().any()
    }


def reset(module: Any) -> None:
    """Runs the initialisers of a module: those of children first, as constructors do."""
    for part in module.modules():
        vars(part).pop(LOADED, None)
    if hasattr(module, "initialize_weights") and hasattr(module, "config"):  # of transformers
        module.initialize_weights()
        return
    for child in module.children():
        reset(child)
    for name in RESET:
        own = getattr(module, name, None)
        if callable(own):
            own()
            return


def _roots(module: Any) -> list[Any]:
    """The module, or the modules that a converted function refers to."""
    return list(module.children()) if hasattr(module, "function") else [module]


def _copy(name: str, tensor: Any) -> Any:
    """A tensor like this one in the host's memory."""
    import torch

    parameter, held = isinstance(tensor, torch.nn.Parameter), tensor.detach()
    if (parameter and held.is_floating_point()) or name.split(".")[-1] in OF_BATCHES:
        value = float("nan") if held.is_floating_point() else -1
        new = torch.full_like(held, value, device="cpu")
    else:
        new = torch.zeros_like(held, device="cpu") if held.is_meta else held.cpu().clone()
    return torch.nn.Parameter(new, tensor.requires_grad) if parameter else new


def _bits(tensor: Any) -> Any:
    """Equal where the values are, NaN with NaN."""
    import torch

    held = tensor.detach().contiguous()
    return held.view(torch.uint8) if held.dim() and held.numel() else held.nan_to_num(7.0)


def _numpy(tensor: Any) -> np.ndarray:
    import torch

    held = tensor.detach()
    narrow = held.is_floating_point() and held.dtype not in (torch.float32, torch.float64)
    return (held.float() if narrow else held).numpy()
