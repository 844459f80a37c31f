"""Functions of torch whose C++ reads tensors from memory, by other functions that do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from anyjax.torch.eager.tensor import EagerTensor
from anyjax.torch.engine import tensor_lists

if TYPE_CHECKING:
    from jaxtyping import PyTree

MEAN = (1, "mean")


def _made(data: PyTree, **options: PyTree) -> Any:
    """Makes a tensor of lists that hold tensors."""
    return tensor_lists.stacked(data, **options) if tensor_lists.holds_tensors(data) else None


def _split(tensor: torch.Tensor, places: PyTree, dim: int = 0, **_: PyTree) -> Any:
    """Splits at places in a tensor."""
    places = places.tolist() if isinstance(places, EagerTensor) else None
    return None if places is None else tensor.tensor_split(places, dim)


def _ctc(
    log_probs: torch.Tensor, targets: torch.Tensor, input_lengths: PyTree, target_lengths: PyTree,
    blank: int = 0, reduction: PyTree = "mean", zero_infinity: bool = False,
) -> Any:  # fmt: skip
    """Takes the mean, for which torch writes the lengths to a tensor."""
    if reduction not in MEAN or isinstance(target_lengths, torch.Tensor):
        return None
    lengths = input_lengths, target_lengths
    losses = torch.ctc_loss(log_probs, targets, *lengths, blank, 0, zero_infinity)
    return (losses / torch.tensor(target_lengths).clamp(min=1)).mean()


SERVED: dict[Any, Any] = {
    torch.tensor: _made,
    torch.as_tensor: _made,
    torch.tensor_split: _split,
    torch.Tensor.tensor_split: _split,
    torch.ctc_loss: _ctc,
    torch.nn.functional.ctc_loss: _ctc,
}


class HostReads(TorchFunctionMode):
    """Serves these functions; what they decline, and all others, are torch's."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        serve = SERVED.get(func)
        out = None if serve is None else serve(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {})) if out is None else out
