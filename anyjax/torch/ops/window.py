"""Overlapping windows: unfold, im2col, col2im, as_strided."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax

from anyjax.errors import Unsupported
from anyjax.torch.core.schema import aten, lowers
from anyjax.torch.ops._operands import broadcast, cast
from anyjax.torch.ops.index import assign

FEW = 32  # so many slices are faster than one gather, and their gradient is no scatter


def windows(x, axis: int, size: int, step: int, dilation: int = 1):
    """Axis ``axis`` becomes two: which window, and the place in it."""
    span = dilation * (size - 1) + 1
    count = (x.shape[axis] - span) // step + 1
    if span == step:
        covered = lax.slice_in_dim(x, 0, count * step, axis=axis)
        return lax.reshape(covered, (*x.shape[:axis], count, size, *x.shape[axis + 1 :]))
    by_places = not isinstance(count, int) or size <= count
    if (size if by_places else count) <= FEW:
        along = axis + by_places
        if by_places:
            last = (count - 1) * step + 1
            slices = [
                lax.slice_in_dim(x, k * dilation, k * dilation + last, step, axis)
                for k in range(size)
            ]
        else:
            slices = [
                lax.slice_in_dim(x, i * step, i * step + span, dilation, axis) for i in range(count)
            ]
        return lax.concatenate([lax.expand_dims(p, (along,)) for p in slices], along)
    starts = lax.iota("int32", count) * step
    out = jax.vmap(lambda i: lax.dynamic_slice_in_dim(x, i, span, axis), out_axes=axis)(starts)
    return lax.slice_in_dim(out, 0, span, dilation, axis + 1) if dilation > 1 else out


@lowers(aten.unfold, aten.unfold_copy)
def unfold(self, dimension, size, step):
    if self.ndim == 0:
        return lax.reshape(self, (size,))
    axis = dimension % self.ndim
    return jnp.moveaxis(windows(self, axis, size, step), axis + 1, -1)


@lowers(aten.unfold_backward)
def fold(grad_in, input_sizes, dim, size, step):
    """Each element summed over its places in the windows."""
    full = jax.ShapeDtypeStruct(tuple(input_sizes), grad_in.dtype)
    return jax.linear_transpose(lambda x: unfold(x, dim, size, step), full)(grad_in)[0]


@lowers(aten.im2col)
def im2col(self, kernel_size, dilation, padding, stride):
    """The columns hold channel, kernel row, kernel column, in this order."""
    if self.ndim == 3:
        return im2col(self[None], kernel_size, dilation, padding, stride)[0]
    x = lax.pad(self, self.dtype.type(0), [(0, 0, 0), (0, 0, 0), *((p, p, 0) for p in padding)])
    x = windows(x, 2, kernel_size[0], stride[0], dilation[0])
    x = windows(x, 4, kernel_size[1], stride[1], dilation[1])
    x = lax.transpose(x, (0, 1, 3, 5, 2, 4))
    return lax.reshape(x, (x.shape[0], math.prod(x.shape[1:4]), math.prod(x.shape[4:])))


@lowers(aten.col2im)
def col2im(self, output_size, kernel_size, dilation, padding, stride):
    """The transpose of im2col."""
    channels = self.shape[-2] // math.prod(kernel_size)
    image = jax.ShapeDtypeStruct((*self.shape[:-2], channels, *output_size), self.dtype)
    columns = lambda x: im2col(x, kernel_size, dilation, padding, stride)
    return jax.linear_transpose(columns, image)(self)[0]


def places(shape, size, stride, offset) -> jax.Array:
    """The flat positions that ``size`` and ``stride`` name in an array of this shape."""
    last = offset + sum((n - 1) * s for n, s in zip(size, stride))
    if math.prod(size) and not 0 <= last < math.prod(shape):
        raise Unsupported(
            f"as_strided(size={size}, stride={stride}, storage_offset={offset}) of {tuple(shape)}",
            why="it reaches memory outside the tensor that it was called on",
            do="slice the tensor that owns the memory",
        )
    return sum(
        (lax.broadcasted_iota("int32", size, i) * s for i, s in enumerate(stride)),
        jnp.int32(offset),
    )


@lowers(aten.as_strided, aten.as_strided_copy)
def as_strided(self, size, stride, storage_offset):
    """``self`` owns the memory (see torch.strides here); its contiguous axes move as one block."""
    offset, lead, block = storage_offset or 0, len(size), 1
    while lead and (stride[lead - 1] == block or size[lead - 1] == 1):
        lead -= 1
        block *= size[lead]
    places(self.shape, size, stride, offset)  # checks
    if block == 0 or math.prod(size) == 0:
        return jnp.zeros(size, self.dtype)
    starts = places(self.shape, size[:lead], stride[:lead], offset)
    flat = lax.reshape(self, (self.size,))
    take = lambda i: lax.dynamic_slice_in_dim(flat, i, block)
    return lax.reshape(jax.vmap(take)(lax.reshape(starts, (starts.size,))), size)


@lowers(aten.as_strided_scatter)
def as_strided_scatter(self, src, size, stride, storage_offset):
    index = places(self.shape, size, stride, storage_offset or 0)
    src = broadcast(cast(src, self.dtype), tuple(size))
    return lax.reshape(assign(lax.reshape(self, (self.size,)), (index,), src), self.shape)
