"""Operators without a lowering: torch's own decomposition, a callback, or an error that lists all.

A decomposition in C++ runs above functionalization again, and so does one in Python that writes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import torch

from anyjax.errors import MissingOps
from anyjax.torch.core import diagnostics, private
from anyjax.torch.core.call import call_of
from anyjax.torch.core.dtypes import to_jax
from anyjax.torch.core.lifting import lift, lowered
from anyjax.torch.core.pytrees import map_tensors
from anyjax.torch.core.tensor import JaxTensor
from anyjax.torch.engine import foreach
from anyjax.torch.engine.callback import call_torch


class Write(Exception):
    """A decomposition writes to a tensor, so it has to run above functionalization."""


class Fallback:
    """Serves the operators of one trace that have no lowering.

    Args:
      trace: the dispatch mode, which decompositions run under.
      callback: whether an operator without a decomposition runs in torch.
    """

    def __init__(self, trace: Any, callback: bool):
        self.trace, self.callback = trace, callback
        self.missing: dict[str, tuple[Any, str]] = {}  # with the place where it was met
        self.decomposing: set[Any] = set()

    def __call__(self, op, args, kwargs):
        if op.has_kernel_for_dispatch_key(private.COMPOSITE):
            with self.above():
                return lowered(op.decompose(*lift(args), **lift(kwargs)))
        if any(a.is_write for a in op._schema.arguments):
            raise Write(str(op))
        if foreach.serves(op):
            with self.trace:
                return foreach.each(op, args, kwargs)
        if custom := private.CUSTOM_OPS.get(op._schema.name):
            with self.above():
                return lowered(custom._init_fn(*lift(args), **lift(kwargs)))
        function = private.decompositions.get(op) or getattr(op, "impl_aten", None)
        if function is None or op in self.decomposing:  # some come back to their operator
            return self.note_missing(op, args, kwargs)
        self.decomposing.add(op)
        try:
            with self.trace:
                return function(*args, **kwargs)
        except Write:
            with self.above():
                return lowered(function(*lift(args), **lift(kwargs)))
        finally:
            self.decomposing.discard(op)

    def note_missing(self, op, args, kwargs):
        """Zeros of the right shape stand in for the result, so that one run finds all missing
        operators; or torch computes it.
        """
        diagnostics.refuse_kind(op)
        if self.callback:
            self.trace.unread.clear()
            key = self.trace.keys.draw(op) if call_of(op).random else None
            return self.trace.whole(call_torch, op, args, kwargs, key)
        self.missing.setdefault(str(op), (op, diagnostics.where()))
        meta = lambda t: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")
        try:
            shapes = op(
                *map_tensors(meta, args),
                **map_tensors(meta, kwargs),
            )
        except Exception as error:
            raise self.missing_ops() from error
        stand_in = lambda t: JaxTensor(jnp.zeros(t.shape, to_jax(t.dtype)), t.dtype)
        return map_tensors(stand_in, shapes)

    def missing_ops(self) -> MissingOps:
        """Returns the error that lists every operator without a lowering, with a stub to paste."""
        return diagnostics.missing_ops(
            {name: op for name, (op, _) in self.missing.items()},
            {name: place for name, (_, place) in self.missing.items()},
        )

    @contextlib.contextmanager
    def above(self) -> Iterator[None]:
        """Back above functionalization, from inside the handler."""
        excluded = private.is_excluded(private.FUNCTIONALIZE)
        private.set_excluded(private.FUNCTIONALIZE, False)
        try:
            with self.trace:
                yield
        finally:
            private.set_excluded(private.FUNCTIONALIZE, excluded)
