"""The initialisers of torch modules: ``reset_parameters`` and transformers' own."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from anyjax.flax.wrap.names import OF_BATCHES
from anyjax.flax.wrap.private import LOADED, RESET

if TYPE_CHECKING:
    import torch


def rerun(source: Any, seed: int) -> dict[str, np.ndarray]:
    """Runs the initialisers under a seed, and returns the tensors that they write, by name.

    They write to a copy of the module, whose parameters and BatchNorm statistics hold NaN or -1:
    values that changed were written. Other buffers keep their values.
    """
    import torch

    empty = {name: _copy(name, tensor) for name, tensor in source.slots.tensors.items()}
    memo: dict[int, Any] = {id(t): empty[name] for name, t in source.slots.tensors.items()}
    marked = {name: t.detach().clone() for name, t in empty.items()}
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        for module in _roots(source.module):
            reset(copy.deepcopy(module, memo))
    return {
        name: _numpy(tensor)
        for name, tensor in empty.items()
        if not torch.equal(_bits(tensor), _bits(marked[name])) and not tensor.isnan().any()
    }


def reset(module: torch.nn.Module) -> None:
    """Runs the initialisers of a module, children first, as constructors do."""
    for submodule in module.modules():
        vars(submodule).pop(LOADED, None)
    if hasattr(module, "initialize_weights") and hasattr(module, "config"):  # of transformers
        module.initialize_weights()
        return
    for child in module.children():
        reset(child)
    for name in RESET:
        initialise = getattr(module, name, None)
        if callable(initialise):
            initialise()
            return


def _roots(module: torch.nn.Module) -> list[torch.nn.Module]:
    """Returns the module, or the modules that a converted function refers to."""
    from anyjax.torch.objects.functions import Function

    return list(module.children()) if isinstance(module, Function) else [module]


def _copy(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Returns a copy in the host's memory; NaN or -1 in parameters and BatchNorm statistics."""
    import torch

    parameter, values = isinstance(tensor, torch.nn.Parameter), tensor.detach()
    if (parameter and values.is_floating_point()) or name.split(".")[-1] in OF_BATCHES:
        mark = float("nan") if values.is_floating_point() else -1
        new = torch.full_like(values, mark, device="cpu")
    else:
        new = torch.zeros_like(values, device="cpu") if values.is_meta else values.cpu().clone()
    return torch.nn.Parameter(new, tensor.requires_grad) if parameter else new


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor for comparison, in which NaN equals NaN."""
    import torch

    values = tensor.detach().contiguous()
    return values.view(torch.uint8) if values.dim() and values.numel() else values.nan_to_num(7.0)


def _numpy(tensor: torch.Tensor) -> np.ndarray:
    import torch

    values = tensor.detach()
    narrow = values.is_floating_point() and values.dtype not in (torch.float32, torch.float64)
    return (values.float() if narrow else values).numpy()
