"""Where the elements of a tensor would lie in torch's memory.

JAX arrays have no strides, but torch code decides by them: ``contiguous`` and ``reshape`` give a
copy or an alias, and only an alias hands later in-place writes to the original; ``as_strided``
counts in them. So a wrapper tensor reports the strides that torch would have given it: a view those
of torch's own view, an elementwise result those of its operands, anything else is contiguous.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from jax import lax

from anyjax.dtypes import x64
from anyjax.errors import Unsupported
from anyjax.torch.core import private, sizes
from anyjax.torch.core.dtypes import WIDE
from anyjax.torch.core.tensor import JaxTensor

aten = torch.ops.aten

Layout = tuple[tuple[int, ...], int]  # strides and offset, in elements
# Elementwise, though torch does not tag them as such.
KEEPS = {"clone", "_to_copy", "zeros_like", "ones_like", "full_like", "empty_like"}
KEEPS |= {"rand_like", "randn_like", "randint_like", "bernoulli", "native_dropout"}
# Written copies of their first argument, and what functionalization makes of in-place writes.
WRITTEN = {"copy", "fill", "zero", "put", "index_put", "_unsafe_index_put", "_index_put_impl"}
WRITTEN |= {"index_add", "index_copy", "index_fill", "index_reduce", "masked_fill"}
WRITTEN |= {"masked_scatter", "scatter", "scatter_add", "scatter_reduce", "slice_scatter"}
WRITTEN |= {"select_scatter", "diagonal_scatter", "as_strided_scatter"}
WRITTEN |= {"uniform", "normal_functional", "exponential"}
STRIDED = {aten.as_strided.default, aten.as_strided_copy.default, aten.as_strided_scatter.default}


def order_of(op) -> str | None:
    """Returns how results lie in memory: a "view", in the order of the operands ("keeps") or of the
    first one ("written"), or contiguous (None; "bits" are, too).
    """
    if op is aten.view_copy.dtype:
        return "bits"
    alias = op._schema.returns[0].alias_info if len(op._schema.returns) == 1 else None
    if alias is not None and not alias.is_write:
        return "view"
    name = op._schema.name.split("::")[1]
    if name in WRITTEN:
        return "written"
    return "keeps" if name in KEEPS or torch.Tag.pointwise in op.tags else None


def layout_of(kind, op, shape, operands, args, kwargs, place=0) -> Layout | None:
    """Strides and offset of result number ``place``; None for contiguous memory of its own."""
    if kind is None:
        return None
    lengths = {*map(type, shape)}
    for x in operands:
        if isinstance(x, JaxTensor):
            lengths.update(map(type, x.array.shape))
    if lengths <= {int} and (kind != "view" or not sizes.symbolic(args[1:])):
        return _layout_of(kind, op, shape, operands, args, kwargs, place)
    with sizes.generally():
        return _layout_of(kind, op, shape, operands, args, kwargs, place)


def _layout_of(kind, op, shape, operands, args, kwargs, place) -> Layout | None:
    if kind == "view":
        return _of_view(op, args, kwargs, place)
    if kind == "bits":
        check_same_bits(args[0].dtype, args[1])
    if kind == "bits":
        return None
    if (memory_format := kwargs.get("memory_format")) not in (None, torch.preserve_format):
        if memory_format is torch.contiguous_format:
            return None
        shape = sizes.to_torch(shape)
        return torch.empty(shape, memory_format=memory_format, device="meta").stride(), 0
    operands = operands[:1] if kind == "written" else operands
    if all(map(torch.Tensor.is_contiguous, operands)):
        return None
    shapes = sizes.to_torch(shape), tuple([(tuple(t.shape), t.stride()) for t in operands])
    return (_elementwise.__wrapped__ if sizes.symbolic(shapes) else _elementwise)(*shapes)


def _of_view(op, args, kwargs, place) -> Layout | None:
    if op is aten.as_strided.default:
        self, _, stride, offset = (*args, None)[:4]
        return tuple(stride), self.storage_offset() if offset is None else offset
    if op is aten.view.dtype:
        check_same_bits(args[0].dtype, args[1])
    out = as_meta(op, args, kwargs)
    out = out[place] if isinstance(out, (list, tuple)) else out
    if out is None or (out.is_contiguous() and not out.storage_offset()):
        return None
    return out.stride(), out.storage_offset()


def check_same_bits(old: torch.dtype, new: torch.dtype) -> None:
    """Raises Unsupported where JAX has not all bits of one of these dtypes."""
    if old is not new and not x64() and (old in WIDE or new in WIDE):
        raise Unsupported(
            f"the bits of {old} seen as {new}",
            why="JAX keeps 32 bits of 64-bit types unless x64 is on",
            do='call jax.config.update("jax_enable_x64", True) first',
        )


def as_meta(op, args, kwargs):
    """torch's own view; None where torch would have copied, or the base lies otherwise."""
    try:
        return op(to_meta(args[0]), *args[1:], **kwargs)
    except RuntimeError:
        return None


@lru_cache(4096)
def _elementwise(shape, operands) -> Layout | None:
    """Returns the layout that torch's TensorIterator chooses, by asking torch."""
    metas = [torch.empty_strided(*o, device="meta") for o in operands]
    try:
        metas = [m.expand(shape) for m in metas if m.dim()]
    except RuntimeError:  # not elementwise after all
        return None
    strides = private.output_strides(*metas)
    result = torch.empty_strided(shape, strides, device="meta")
    return None if result.is_contiguous() else (tuple(strides), 0)


def to_meta(tensor: torch.Tensor) -> torch.Tensor:
    """Shape, strides, offset and dtype without values."""
    return of_memory(tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype)


def of_memory(shape, stride, offset: int, dtype: torch.dtype) -> torch.Tensor:
    """Returns a tensor without values that lies so in its memory."""
    if not offset:
        return torch.empty_strided(shape, stride, dtype=dtype, device="meta")
    last = sum((n - 1) * s for n, s in zip(shape, stride)) if 0 not in shape else -1
    memory = torch.empty(offset + last + 1, dtype=dtype, device="meta")
    return memory.as_strided(shape, stride, offset)


def rebase(op, args, kwargs) -> tuple[Any, ...]:
    """Returns an as_strided call's arguments for a lowering that sees the whole memory, in its
    order.
    """
    self, *rest = args
    at = 1 if op is not aten.as_strided_scatter.default else 2
    geometry = dict(zip(("size", "stride", "storage_offset"), args[at:])) | kwargs
    offset = geometry.get("storage_offset")
    offset = self.storage_offset() if offset is None else offset
    if at == 2:
        if not self.is_contiguous():
            raise Unsupported(
                "writing through as_strided of a tensor that is not contiguous",
                why="which of its elements lie where is not worked out",
                do="call as_strided on the tensor that owns the memory",
            )
        relative = offset - self.storage_offset()
        return (self, rest[0], geometry["size"], geometry["stride"], relative), {}
    base, detached = self, False
    while base.made_by is not None and as_meta(*base.made_by) is not None:
        detached |= base.made_by[0] is aten.detach.default
        base = base.made_by[1][0]
        if base.dtype.itemsize != self.dtype.itemsize:
            raise Unsupported(
                "as_strided of a view with another item size",
                why="its strides count in other elements than its base has",
                do="clone the view first",
            )
    base = in_memory_order(base)
    if detached:
        base = JaxTensor(lax.stop_gradient(base.array), base.dtype, base.origins)
    return (base, geometry["size"], geometry["stride"], offset), {}


def in_memory_order(base: JaxTensor) -> JaxTensor:
    """Returns the tensor with its axes in the order of its strides, which makes it contiguous."""
    if base.is_contiguous():
        return base
    order = sorted(range(base.dim()), key=lambda i: -base.stride(i))
    return JaxTensor(lax.transpose(base.array, order), base.dtype, base.origins)


def as_target(out: Any, target: torch.Tensor) -> Any:
    """Returns the result of an operator that computes in place: it lies as its target does."""
    if not isinstance(out, JaxTensor) or out.made_by is not None or out.shape != target.shape:
        return out
    new = JaxTensor(out.array, out.dtype, out.origins, (target.stride(), 0))
    new.limit, new.unchecked = out.limit, out.unchecked
    return new


def check_write_through_unfold(input_sizes, dim, size, step) -> None:
    """Functionalization uses unfold's gradient, outside of autograd, to write through unfold; that
    is right only where each element has exactly one place in the windows.
    """
    tiles = step == size and (not input_sizes or input_sizes[dim] % size == 0)
    if not tiles and private.graph_task() == -1:
        raise Unsupported(
            f"writing through unfold(size={size}, step={step}) of {tuple(input_sizes)}",
            why="its windows do not hold every element once",
            do="write to the tensor itself, by slices, or clone what unfold returned",
        )


def lu_factors(matrix: torch.Tensor, is_contiguous: bool) -> tuple[torch.Tensor, ...]:
    """Returns the factors and pivots that torch keeps of a determinant: LAPACK reads the memory of
    a contiguous matrix as its transpose.
    """
    turned = is_contiguous and not matrix.is_complex()
    return torch.ops.aten.linalg_lu_factor(matrix.mT if turned else matrix)
