"""Calls of ``torch.*`` and of tensors' methods with tensors on JAX, before torch takes them apart.

Most go to torch as they are. What would read tensors from memory is served by other functions, and
what torch's C++ makes of others makes new tensors on JAX, inside of ``on_jax`` or not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from anyjax.torch.core import private
from anyjax.torch.core.pytrees import flatten
from anyjax.torch.eager.factories import Factories
from anyjax.torch.eager.tensor import FORMULA, KIND, EagerTensor, from_torch, refuse_double
from anyjax.torch.engine import tensor_lists
from anyjax.torch.lowering import composites
from anyjax.torch.lowering.out import into, is_composite
from anyjax.typing import PyTree

MEAN = (1, "mean")


def _made(data: PyTree, **options: PyTree) -> Any:
    """Makes a tensor of lists that hold tensors."""
    return tensor_lists.stacked(data, **options) if tensor_lists.holds_tensors(data) else None


def _split(tensor: torch.Tensor, places: PyTree, dim: int = 0, **_: PyTree) -> Any:
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
    return (losses / from_torch(torch.tensor(target_lengths)).clamp(min=1)).mean()


def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    attn_mask: torch.Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    **options: PyTree,
) -> Any:  # fmt: skip
    """Computes attention as one operator, where torch's autograd has nothing to keep of it."""
    tensors = [x for x in (query, key, value, attn_mask) if isinstance(x, torch.Tensor)]
    if dropout_p or (torch.is_grad_enabled() and any(x.requires_grad for x in tensors)):
        return None
    args = query, key, value, attn_mask, dropout_p, is_causal
    return (KIND.get() or EagerTensor).dispatched(ATTENTION, args, options)


ATTENTION = torch.ops.aten.scaled_dot_product_attention.default
SERVED: dict[Any, Any] = {
    torch.nn.functional.scaled_dot_product_attention: _attention,
    torch.tensor: _made,
    torch.as_tensor: _made,
    torch.tensor_split: _split,
    torch.Tensor.tensor_split: _split,
    torch.ctc_loss: _ctc,
    torch.nn.functional.ctc_loss: _ctc,
}


class Functions(TorchFunctionMode):
    """Sees functions of lists that hold tensors, which no tensor sees."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = SERVED[func](*args, **kwargs) if func in SERVED else None
        return func(*args, **kwargs) if out is None else out


def call(func: Callable, args: tuple, kwargs: dict[str, PyTree]) -> Any:
    """Returns a function of tensors."""
    if func in SERVED and (out := SERVED[func](*args, **kwargs)) is not None:
        return out
    if "out" in kwargs and is_composite(func, out=True):
        outs = flatten(kwargs["out"])[0]
        if all(isinstance(x, EagerTensor) for x in outs):
            return into(func, args, kwargs)
    kernels = private.python_kernels() if composites.exist() else contextlib.nullcontext()
    with private.DisableTorchFunctionSubclass(), kernels:
        return _formula(func, args, kwargs) if is_composite(func) else func(*args, **kwargs)


def _formula(func: Callable, args: tuple, kwargs: dict[str, PyTree]) -> Any:
    """Returns a function that torch computes by others, some of which make tensors: on JAX, and
    in 64 bits where these do not come out.
    """
    outer = FORMULA.set(True)
    try:
        with contextlib.nullcontext() if Factories.inside() else Factories():
            out = func(*args, **kwargs)
    finally:
        FORMULA.reset(outer)
    for result in out if isinstance(out, (list, tuple)) else [out]:
        if isinstance(result, EagerTensor):
            refuse_double(result.dtype)
    return out


EagerTensor.call = staticmethod(call)
