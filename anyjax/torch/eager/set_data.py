"""``tensor.data = other`` of a tensor of torch's own and one on JAX.

torch would share memory that there is none of, and end the process where it reads that. It asks
this one operator whether it may, in C++, which sees no class of ours.
"""

from __future__ import annotations

from typing import Any

import torch

from anyjax.errors import Unsupported
from anyjax.torch.core import diagnostics, private
from anyjax.torch.core.tensor import JaxTensor

LIBRARY = torch.library.Library("aten", "IMPL")
COMPATIBLE = torch.ops.aten._has_compatible_shallow_copy_type.default


def compatible(keys: Any, tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Returns torch's answer.

    Raises:
      Unsupported: the tensor is torch's own, the other one is on JAX.
    """
    if isinstance(other, JaxTensor) and not isinstance(tensor, JaxTensor):
        raise Unsupported(
            f"{type(tensor).__name__}.data is set to a tensor on JAX",
            where=diagnostics.where(),
            why="the tensor is torch's own, in memory, and the values are in a jax.Array",
            do="put a new one in its place: module.weight = torch.nn.Parameter(x); or move all of "
            "a module: anyjax.torch.interop.to_jax(module)",
        )
    return bool(COMPATIBLE.redispatch(keys & private.below_autograd, tensor, other))


LIBRARY.impl(COMPATIBLE, compatible, "AutogradCPU", with_keyset=True)
