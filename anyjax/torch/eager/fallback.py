"""Operators without a lowering: torch's own decompositions, gradients by JAX's, or an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from anyjax.torch.core import diagnostics, private
from anyjax.torch.core.call import call_of
from anyjax.torch.core.pytrees import flatten
from anyjax.torch.eager import gradients
from anyjax.torch.eager.factories import Factories
from anyjax.torch.eager.tensor import from_torch
from anyjax.torch.engine import foreach

if TYPE_CHECKING:
    from jaxtyping import PyTree


def fallback(op: private.OpOverload, args: tuple, kwargs: dict[str, PyTree]) -> Any:
    """Returns the results of an operator by way of others.

    Raises:
      MissingOps: there is no other way.
    """
    with Factories():
        if (function := gradients.SPECIAL.get(op)) is not None:
            return function(*args, **kwargs)
        if op.has_kernel_for_dispatch_key(private.COMPOSITE):
            return op.decompose(*args, **kwargs)
        if foreach.serves(op):
            return foreach.each(op, args, kwargs)
        if custom := private.CUSTOM_OPS.get(op._schema.name):
            return custom._init_fn(*args, **kwargs)
        if (function := private.decompositions.get(op)) is not None:
            return function(*args, **kwargs)
        if (function := gradients.of(op)) is not None:
            return function(*args, **kwargs)
    tensors = [x for x in flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)]
    if not tensors and not call_of(op).random:  # a constant, like torch.tensor
        with private.DisableTorchDispatch():
            return from_torch(op(*args, **kwargs))
    diagnostics.refuse_kind(op)
    raise diagnostics.missing_ops({str(op): op}, {str(op): diagnostics.where()})
