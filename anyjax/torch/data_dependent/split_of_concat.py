"""A concatenation that is taken apart where it was put together gives back its parts.

GLM-5 Next keeps masks beside floats and unpacks them later. What such a part depends on is then
known exactly, and a part that is a constant stays one, from which a shape may come.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import torch

from anyjax.errors import Unsupported
from anyjax.torch.core import diagnostics, private
from anyjax.torch.core.sizes import symbolic
from anyjax.torch.core.tensor import JaxTensor, value_of

aten = torch.ops.aten
CUTS = {aten.split.Tensor, aten.split_with_sizes.default, aten.slice.Tensor}


def note(out: JaxTensor, tensors, dim: int = 0) -> None:
    """Keeps what ``out`` was put together from: (first position, array or constant, origins), and
    whether it has a gradient.
    """
    if symbolic(out.shape):
        return
    dim %= max(out.dim(), 1)
    sizes = [t.shape[dim] if t.dim() == out.dim() else 0 for t in tensors]
    pieces = [
        (stop - size, value_of(t), getattr(t, "origins", 0))
        for t, size, stop in zip(tensors, sizes, itertools.accumulate(sizes))
        if size and t.dtype is out.dtype
    ]
    out.parts = dim, pieces, torch.is_grad_enabled()


class PackedConstants:
    """Cuts concatenations of a trace where they were joined."""

    def __init__(self):
        self.handed: dict[int, torch.Tensor] = {}  # by their memory, constants that were parts

    def taken_apart(self, op, args, kwargs, out: JaxTensor | Sequence[JaxTensor]) -> Any:
        """Returns the parts of a concatenation, where ``op`` cut just these."""
        if symbolic(args[1:]):
            return out
        dim, pieces, follows = args[0].parts
        follows &= torch.is_grad_enabled()
        with private.DisableTorchFunction():
            places = torch.arange(args[0].shape[dim])
            places = places.view([-1 if i == dim else 1 for i in range(args[0].dim())])
            cut = op(places.expand(args[0].shape), *args[1:], **kwargs)
            if isinstance(out, JaxTensor):
                return self.whole(out, cut, dim, pieces, follows)
            return [self.whole(x, c, dim, pieces, follows) for x, c in zip(out, cut)]

    def whole(self, out: JaxTensor, places, dim: int, pieces, follows: bool) -> torch.Tensor:
        for first, piece, origins in pieces if places.numel() else ():
            last = first + piece.shape[dim] - 1
            ends = int(places.select(dim, 0).min()), int(places.select(dim, -1).max())
            if tuple(piece.shape) != tuple(out.shape) or ends != (first, last):
                continue
            if isinstance(piece, torch.Tensor):
                out = torch.empty_strided(out.shape, out.stride(), dtype=out.dtype).copy_(piece)
                self.handed[out.untyped_storage()._cdata] = out
            else:
                out.array = piece if follows else jax.lax.stop_gradient(piece)
                out.origins = origins
        return out

    def check(self, tensor: torch.Tensor) -> None:
        """Refuses to see the memory around a constant that no longer lies in a concatenation."""
        if tensor.untyped_storage()._cdata in self.handed:
            raise Unsupported(
                "as_strided of a part of a concatenation",
                where=diagnostics.where(),
                why="the part is a constant with memory of its own",
                do="clone the part first",
            )
