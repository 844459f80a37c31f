"""The wrapper tensor: what torch code holds while JAX computes."""

from __future__ import annotations

import torch

from tojax.errors import TojaxError
from tojax.torch.dtypes import of_input


class JaxTensor(torch.Tensor):
    """A tensor without storage around a ``jax.Array`` or tracer.

    ``origins`` is a bit mask of the inputs that the value was computed from, for error messages.
    ``made_by`` is the call (operator, args, kwargs) that made a view, for those who need its
    strides.
    """

    array: object
    origins: int
    made_by: tuple | None

    @staticmethod
    def __new__(cls, array, dtype=None, origins=0):
        dtype = of_input(array.dtype) if dtype is None else dtype
        self = torch.Tensor._make_wrapper_subclass(cls, array.shape, dtype=dtype, device="cpu")
        self.array, self.origins, self.made_by = array, origins, None
        return self

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, op, types, args=(), kwargs=None):
        raise TojaxError(
            f"a tensor of a finished trace was used in {op}",
            why="it stands for a value inside a JAX program, not for numbers",
            do="return the value from forward instead of keeping it",
        )

    def __repr__(self, **kwargs):
        return f"JaxTensor({self.array!r}, dtype={self.dtype})"
