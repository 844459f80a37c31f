"""The wrapper tensor: what torch code holds while JAX computes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable

import jax
import torch

from anyjax.errors import AnyjaxError
from anyjax.torch.core import private, sizes
from anyjax.torch.core.dtypes import of_input, widened

GRADIENT = 1  # of the bits of origins


class JaxTensor(torch.Tensor):
    """A tensor without storage around a ``jax.Array`` or tracer.

    ``origins`` is a bit mask of the inputs that the value was computed from, for error messages;
    its bit ``GRADIENT`` says whether torch would say that it requires a gradient.
    ``holder`` gives the tensor of torch code that gets this one's gradient in ``.grad``: that of a
    leaf, or of one whose gradient is ``retained``.
    ``run`` tells in which run of the code it was made, of ``runs`` so far.
    ``made_by`` is the call (operator, args, kwargs) that made a view; ``layout`` are the strides
    and offset that torch would have given it (see strides.py), None if it is contiguous.
    """

    array: jax.Array
    origins: int
    run: int
    runs = 0
    living: list[weakref.ref[torch.Tensor]] | None = None  # all tensors of the traces that go on
    made_by: tuple | None
    holder: Callable[[], torch.Tensor | None] | None = None  # weak
    retained = False
    before_hooks: JaxTensor | None = None
    required: JaxTensor | None = None  # before ``requires_grad_(False)``
    limit: int | None = None  # of the size of integers, see data_dependent/int64.py
    unchecked: str | None = None  # which integers, maybe beyond 32 bits, it was computed from
    parts: tuple | None = None  # of a concatenation, see data_dependent/split_of_concat.py

    @staticmethod
    def __new__(cls, array, dtype=None, origins=0, layout=None):
        if dtype is None:
            array = widened(array)
            dtype = of_input(array.dtype)
        strides, offset = layout or (None, None)
        shape = array.shape
        if not {*map(type, shape)} <= {int}:
            shape = sizes.to_torch(shape)
        self = private.make_wrapper(cls, shape, strides, offset, dtype=dtype, device="cpu")
        private.forbid_pointer(self)
        self.array, self.origins, self.made_by = array, origins, None
        self.run = JaxTensor.runs
        if JaxTensor.living is not None:
            JaxTensor.living.append(weakref.ref(self))
        return self

    @property
    def unhooked(self) -> JaxTensor:
        """The tensor as it was before hooks were set on it."""
        return self if self.before_hooks is None else self.before_hooks

    def alone(self) -> JaxTensor:
        """Returns the same values and strides, no view of anything."""
        layout = self.stride(), self.storage_offset()
        new = JaxTensor(self.array, self.dtype, self.origins, layout)
        new.limit, new.unchecked = self.limit, self.unchecked
        return new

    def detached(self) -> JaxTensor:
        """Returns the same values, from which no gradient comes back."""
        out = self.alone()
        out.array, out.origins = jax.lax.stop_gradient(self.array), self.origins & ~GRADIENT
        return out

    __torch_function__ = private.no_torch_function

    @classmethod
    def __torch_dispatch__(cls, op, types, args=(), kwargs=None):
        raise AnyjaxError(
            f"a tensor of a finished trace was used in {op}",
            why="it stands for a value inside a JAX program, not for numbers",
            do="return the value from forward instead of keeping it",
        )

    def __repr__(self, **kwargs):
        return f"JaxTensor({self.array!r}, dtype={self.dtype})"


def differentiable(dtype: torch.dtype) -> bool:
    """Returns whether tensors of this dtype may need a gradient."""
    return dtype.is_floating_point or dtype.is_complex


def needs_gradient(tensor: torch.Tensor) -> bool:
    """Returns whether torch would say that this tensor of a trace requires a gradient."""
    return bool(getattr(tensor, "origins", 0) & GRADIENT)


def value_of(tensor: torch.Tensor) -> jax.Array | torch.Tensor:
    """Returns the array of a wrapper; a constant as it is."""
    return tensor.array if isinstance(tensor, JaxTensor) else tensor


def origins_of(operands: Iterable[object]) -> int:
    """Returns the inputs that these come from, as bits, and whether any needs a gradient."""
    origins = 0
    for operand in operands:
        origins |= getattr(operand, "origins", 0)
    return origins
