"""The wrapper tensor: what torch code holds while JAX computes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import torch

from tojax.errors import TojaxError, Unsupported
from tojax.torch.core import private
from tojax.torch.core.dtypes import of_input


class JaxTensor(torch.Tensor):
    """A tensor without storage around a ``jax.Array`` or tracer.

    ``origins`` is a bit mask of the inputs that the value was computed from, for error messages.
    ``run`` tells in which run of the code it was made, of ``runs`` so far.
    ``made_by`` is the call (operator, args, kwargs) that made a view; ``layout`` are the strides
    and offset that torch would have given it (see strides.py), None if it is contiguous.
    """

    array: jax.Array
    origins: int
    run: int
    runs = 0
    made_by: tuple | None
    bounds: tuple[int, int] | None = None  # of integers, see data_dependent/integer_bounds.py
    parts: tuple | None = None  # of a concatenation, see data_dependent/packed_constants.py

    @staticmethod
    def __new__(cls, array, dtype=None, origins=0, layout=None):
        dtype = of_input(array.dtype) if dtype is None else dtype
        strides, offset = layout or (None, None)
        if not all(isinstance(n, int) for n in array.shape):
            raise Unsupported(
                f"an array of shape {array.shape}",
                why="torch code reads sizes as numbers, and a symbolic dimension has none",
                do="jax.vmap over it (jax.export.symbolic_shape works so), or export each size",
            )
        self = private.make_wrapper(cls, array.shape, strides, offset, dtype=dtype, device="cpu")
        self.array, self.origins, self.made_by = array, origins, None
        self.run = JaxTensor.runs
        return self

    def alone(self) -> JaxTensor:
        """The same values and strides, no view of anything."""
        layout = self.stride(), self.storage_offset()
        new = JaxTensor(self.array, self.dtype, self.origins, layout)
        new.bounds = self.bounds
        return new

    __torch_function__ = private.no_torch_function

    @classmethod
    def __torch_dispatch__(cls, op, types, args=(), kwargs=None):
        raise TojaxError(
            f"a tensor of a finished trace was used in {op}",
            why="it stands for a value inside a JAX program, not for numbers",
            do="return the value from forward instead of keeping it",
        )

    def __repr__(self, **kwargs):
        return f"JaxTensor({self.array!r}, dtype={self.dtype})"


def value_of(tensor: torch.Tensor) -> jax.Array | torch.Tensor:
    """The array of a wrapper; a constant as it is."""
    return tensor.array if isinstance(tensor, JaxTensor) else tensor


def origins_of(operands: Iterable[Any]) -> int:
    """Which inputs these were computed from, as bits."""
    origins = 0
    for operand in operands:
        origins |= getattr(operand, "origins", 0)
    return origins
