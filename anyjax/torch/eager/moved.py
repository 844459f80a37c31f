"""Tensors and modules of torch's own, moved to JAX."""

from __future__ import annotations

from typing import Any

import jax
import torch

from anyjax import trees
from anyjax.torch.eager.tensor import from_torch
from anyjax.typing import PyTree, T


def to_jax(tree: T) -> T:
    """Returns tensors of torch's own as tensors on JAX; a module moves itself, in place.

    It is a copy as that between two devices: leaves, parameters among them, are leaves again, and
    a tensor that occurs twice is one. ``x.torch()`` is the way back.

    Args:
      tree: a module, or any pytree of tensors.

    Returns:
      The module itself, or the same pytree.

    Raises:
      Unsupported: a tensor is on another device than the CPU, such as "meta", is float64 without
        ``jax_enable_x64``, or has a dtype or layout that JAX has not.

    Example:
      >>> import torch
      >>> model = anyjax.torch.interop.to_jax(torch.nn.Linear(3, 2))
      >>> model(anyjax.torch.interop.to_jax(torch.ones(4, 3))).jax().shape
      (4, 2)
    """
    moved: dict[int, torch.Tensor] = {}

    def move(tensor: PyTree) -> Any:
        if not isinstance(tensor, torch.Tensor):
            return tensor
        if id(tensor) not in moved:
            new = from_torch(tensor)
            moved[id(tensor)] = new if new is tensor else new.as_leaf_like(tensor)
        return moved[id(tensor)]

    if isinstance(tree, torch.nn.Module):
        for module in tree.modules():
            for tensors in (module._parameters, module._buffers):
                tensors.update({name: move(x) for name, x in tensors.items()})
        return tree
    is_tensor = lambda x: isinstance(x, torch.Tensor)
    return jax.tree.map(move, trees.register(tree), is_leaf=is_tensor)
