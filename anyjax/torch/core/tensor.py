"""The wrapper tensor: what torch code holds while JAX computes."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable

import jax
import torch

from anyjax.errors import AnyjaxError
from anyjax.torch.core import diagnostics, private, sizes
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
    counts: tuple | None = None  # the call that made a single integer

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
        new.limit, new.unchecked, new.counts = self.limit, self.unchecked, self.counts
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


class CountedTensor(JaxTensor):
    """A tensor of which the first elements along some dimensions count, as many as values decide.

    ``rows`` has all elements that may, in the factors ``dims`` of its dimensions; see sizes/. Code
    that knows nothing of such tensors asks for their ``array`` and gets an error.
    """

    rows: JaxTensor
    dims: tuple[tuple, ...]

    @staticmethod
    def __new__(cls, rows, dims, layout=None):
        strides, offset = layout or (None, None)
        shape = sizes.to_torch([math.prod(dim) for dim in dims])
        make = private.make_wrapper
        self = make(cls, shape, strides, offset, dtype=rows.dtype, device="cpu")
        private.forbid_pointer(self)
        self.rows, self.dims, self.origins, self.made_by = rows, dims, rows.origins, None
        self.run = JaxTensor.runs
        if JaxTensor.living is not None:
            JaxTensor.living.append(weakref.ref(self))
        return self

    @property
    def array(self):  # type: ignore[override]
        """Raises DataDependent: its size is no size of an array."""
        sized = sum(size for dim in self.dims for size in dim)
        raise diagnostics.unknown_size(f"a tensor of shape {list(self.shape)}", sized)

    def alone(self) -> CountedTensor:
        """Returns the same values and strides, no view of anything."""
        layout = self.stride(), self.storage_offset()
        return CountedTensor(self.rows.alone(), self.dims, layout)

    def detached(self) -> CountedTensor:
        """Returns the same values, from which no gradient comes back."""
        layout = self.stride(), self.storage_offset()
        return CountedTensor(self.rows.detached(), self.dims, layout)

    def __repr__(self, **kwargs):
        return f"CountedTensor({list(self.shape)}, dtype={self.dtype})"


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
