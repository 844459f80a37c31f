"""Operators that nothing serves in a trace: a callback, or an error that lists all."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import torch

from anyjax.errors import MissingOps
from anyjax.torch.core import diagnostics
from anyjax.torch.core.dtypes import to_jax
from anyjax.torch.core.pytrees import map_tensors
from anyjax.torch.core.tensor import JaxTensor


class Missing(dict[str, tuple[Any, str]]):
    """The operators of one trace that nothing serves, with the places where they were met."""

    def note(self, trace, op, args, kwargs):
        """Zeros of the right shape stand in for the result, so that one run finds all missing
        operators; or torch computes it, as a callback.
        """
        diagnostics.refuse_kind(op)
        if trace.callback:
            return trace.in_torch(op, args, kwargs)
        self.setdefault(str(op), (op, diagnostics.where()))
        meta = lambda t: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")
        try:
            shapes = op(*map_tensors(meta, args), **map_tensors(meta, kwargs))
        except Exception as error:
            raise self.error() from error
        stand_in = lambda t: JaxTensor(jnp.zeros(t.shape, to_jax(t.dtype)), t.dtype)
        return map_tensors(stand_in, shapes)

    def error(self) -> MissingOps:
        """Returns the error that lists every operator without a lowering, with a stub to paste."""
        return diagnostics.missing_ops(
            {name: op for name, (op, _) in self.items()},
            {name: place for name, (_, place) in self.items()},
        )
