"""Operators that rearrange, join, split or copy elements without looking at them.

Functionalization has made values of torch's views and in-place writes before they arrive here, so
a view is a plain function of its base, and ``clone`` and ``alias`` do nothing at all.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax

from anyjax.errors import Unsupported
from anyjax.torch.core.schema import aten, lowers, table
from anyjax.torch.core.sizes import is_one
from anyjax.torch.ops._operands import broadcast, cast, common, same

END = 2**63 - 1  # how torch writes a slice without an end


def reshape(self, size):
    if -1 in size:
        count = -math.prod(size)
        size = [self.size // count if n == -1 and count else n for n in size]
    if math.prod(size) != self.size:  # lax.reshape takes it, and lowering fails
        raise ValueError(f"shape {list(size)} does not fit {self.size} elements")
    return lax.reshape(self, size)


def expand(self, size, implicit):
    """A size of -1 keeps what is there."""
    old = (1,) * (len(size) - self.ndim) + self.shape
    return broadcast(self, tuple(o if n == -1 else n for n, o in zip(size, old)))


def squeeze(self, dims, /):
    """Axes whose length is not 1 stay."""
    axes = {d % self.ndim for d in dims} if self.ndim else ()
    return lax.squeeze(self, [d for d in axes if is_one(self.shape[d])])


def transpose(self, dim0, dim1):
    axes = list(range(self.ndim))
    if axes:
        axes[dim0], axes[dim1] = axes[dim1], axes[dim0]
    return lax.transpose(self, axes)


def bounds(size, start, end) -> tuple[int, int]:
    """A slice in torch's terms: negative positions count from the end, others are cut to fit."""
    start = 0 if start is None else start
    end = size if end is None or (isinstance(end, int) and end >= END) else end
    is_static = {type(size), type(start), type(end)} <= {int}
    low, high = (max, min) if is_static else (jax.core.max_dim, jax.core.min_dim)
    start, end = [low(high(i + size if i < 0 else i, size), 0) for i in (start, end)]
    return start, low(start, end)


def slice_(self, dim, start, end, step):
    start, end = bounds(self.shape[dim], start, end)
    if (start, end, step) == (0, self.shape[dim], 1):
        return self
    if step > 1 and {type(start), type(end)} == {int} and end - start <= step:
        end, step = min(end, start + 1), 1  # XLA divides one with a step wrongly
    return lax.slice_in_dim(self, start, end, step, dim)


def unbind(self, dim):
    return [lax.index_in_dim(self, i, dim, keepdims=False) for i in range(self.shape[dim])]


def split(self, sizes, dim, /):
    return list(lax.split(self, sizes, dim % self.ndim))


def split_evenly(self, split_size, dim):
    """The last piece is what is left."""
    size = self.shape[dim]
    step = max(split_size, 1)
    return split(self, [min(step, size - i) for i in range(0, size, step)] or [0], dim)


def view_as_real(self):
    return lax.concatenate(
        [lax.expand_dims(f(self), (self.ndim,)) for f in (lax.real, lax.imag)], self.ndim
    )


def view_as_complex(self):
    return lax.complex(*unbind(self, -1))


def view_dtype(self, dtype):
    """Where the item size changes torch scales the last axis, JAX adds or drops one."""
    if dtype == self.dtype:
        return self
    if bool in (dtype, self.dtype):  # XLA's bool has no bits
        if self.dtype == bool:
            return view_dtype(self.astype("uint8"), dtype)
        return view_dtype(self, jnp.dtype("uint8")) != 0
    if jnp.issubdtype(self.dtype, jnp.complexfloating):
        real = view_as_real(self).reshape(*self.shape[:-1], -1)
        return view_dtype(real, dtype)
    if jnp.issubdtype(dtype, jnp.complexfloating):
        half = view_dtype(self, jnp.finfo(dtype).dtype)
        return view_as_complex(half.reshape(*half.shape[:-1], -1, 2))
    old, new = self.dtype.itemsize, jnp.dtype(dtype).itemsize
    if new > old:
        self = self.reshape(*self.shape[:-1], -1, new // old)
    out = lax.bitcast_convert_type(self, dtype)
    return out.reshape(*out.shape[:-2], -1) if new < old else out


VIEWS = {
    "alias": same,
    "detach": lax.stop_gradient,
    "diagonal": jnp.diagonal,
    "expand": expand,
    "permute": lambda self, dims: lax.transpose(self, [d % self.ndim for d in dims]),
    "select.int": lambda self, dim, index: lax.index_in_dim(self, index, dim, keepdims=False),
    "slice.Tensor": slice_,
    "split.Tensor": split_evenly,
    "split_with_sizes": split,
    "squeeze.default": lambda self: squeeze(self, range(self.ndim)),
    "squeeze.dim": lambda self, dim: squeeze(self, [dim]),
    "squeeze.dims": squeeze,
    "t": lambda self: transpose(self, 0, -1),
    "transpose.int": transpose,
    "unbind.int": unbind,
    "unsqueeze": lambda self, dim: lax.expand_dims(self, (dim,)),
    "view.default": reshape,
    "view.dtype": view_dtype,
    "view_as_complex": view_as_complex,
    "view_as_real": view_as_real,
    "_conj": lambda self: lax.conj(self) if jnp.iscomplexobj(self) else self,
    "_neg_view": lax.neg,
}


def _of(name: str):
    packet, _, overload = name.partition(".")
    return getattr(getattr(aten, packet), overload or "default")


for _name, _function in VIEWS.items():
    _packet, _dot, _overload = _name.partition(".")
    table.update({_of(_name): _function, _of(f"{_packet}_copy{_dot}{_overload}"): _function})


def flip(self, dims):
    return lax.rev(self, [d % self.ndim for d in dims])


def roll(self, shifts, dims):
    """Without dims torch rolls the flattened array."""
    return jnp.roll(self, tuple(shifts) if dims else shifts[0], tuple(dims) or None)


def repeat(self, repeats):
    """One broadcast: each axis gets an axis of copies before it."""
    old = (1,) * (len(repeats) - self.ndim) + self.shape
    both = [n for pair in zip(repeats, old) for n in pair]
    axes = range(2 * (len(repeats) - self.ndim) + 1, len(both), 2)
    return lax.reshape(
        lax.broadcast_in_dim(self, both, axes), [r * n for r, n in zip(repeats, old)]
    )


def cat(tensors, dim):
    """Empty 1-d tensors are left out whatever the others' rank, but count for the dtype."""
    dtype = common(*tensors) if len({x.dtype for x in tensors}) > 1 else tensors[0].dtype
    nonempty = [x for x in tensors if x.shape != (0,)] or tensors[:1]
    return lax.concatenate([cast(x, dtype) for x in nonempty], dim % nonempty[0].ndim)


@lowers(aten.stack, aten._stack)
def stack(tensors, dim):
    dim %= tensors[0].ndim + 1
    dtype = common(*tensors) if len({x.dtype for x in tensors}) > 1 else tensors[0].dtype
    return lax.concatenate([lax.expand_dims(cast(x, dtype), (dim,)) for x in tensors], dim)


table.update(
    {
        aten.cat: cat,
        aten.clone: same,
        aten.copy.default: lambda self, src: broadcast(cast(src, self.dtype), self.shape),
        aten.flip: flip,
        aten.lift: same,
        aten.lift_fresh: same,
        aten.lift_fresh_copy: same,
        aten.repeat: repeat,
        aten.roll: roll,
        aten.rot90: lambda self, k, dims: jnp.rot90(self, k, tuple(dims)),
        aten.unsafe_split.Tensor: VIEWS["split.Tensor"],
        aten.unsafe_split_with_sizes: VIEWS["split_with_sizes"],
        aten._conj_physical: VIEWS["_conj"],
        aten._lazy_clone: same,
        aten._reshape_alias: lambda self, size, stride: reshape(self, size),
        aten._reshape_alias_copy: lambda self, size, stride: reshape(self, size),
        aten._reshape_copy: reshape,
        aten._to_copy: cast,
        "prims.convert_element_type": cast,
        aten._unsafe_view: reshape,
    }
)


@lowers(aten.resize.default)
def resize(self, size):
    """The first elements in another shape; torch leaves those that are added undefined."""
    size = tuple(size)
    if math.prod(size) > self.size:
        raise Unsupported(
            f"resize_ of {self.shape} to {size}", why="the added values are undefined"
        )
    return lax.reshape(lax.slice(lax.reshape(self, (self.size,)), (0,), (math.prod(size),)), size)


@lowers(aten.select_scatter)
def select_scatter(self, src, dim, index):
    dim, index = dim % self.ndim, index % self.shape[dim]
    return lax.dynamic_update_slice_in_dim(
        self, lax.expand_dims(cast(src, self.dtype), (dim,)), index, dim
    )


@lowers(aten.slice_scatter)
def slice_scatter(self, src, dim, start, end, step):
    """With a step the update is spread out with holes, a mask says where it goes: no scatter."""
    dim, n = dim % self.ndim, self.shape[dim]
    start, end = bounds(n, start, end)
    count = -(-(end - start) // step)
    src = broadcast(cast(src, self.dtype), (*self.shape[:dim], count, *self.shape[dim + 1 :]))
    if count == 0:
        return self
    if step == 1 or count == 1:
        return src if count == n else lax.dynamic_update_slice_in_dim(self, src, start, dim)
    low, high = start, n - start - (count - 1) * step - 1
    padding = [(low, high, step - 1) if d == dim else (0, 0, 0) for d in range(self.ndim)]
    place = lax.broadcasted_iota("int32", self.shape, dim) - start
    inside = (place >= 0) & (place < count * step) & (place % step == 0)
    return lax.select(inside, lax.pad(src, self.dtype.type(0), padding), self)


@lowers(aten.diagonal_scatter)
def diagonal_scatter(self, src, offset, dim1, dim2):
    moved = jnp.moveaxis(self, (dim1, dim2), (-2, -1))
    i = jnp.arange(src.shape[-1])
    rows, columns = i + max(-offset, 0), i + max(offset, 0)
    out = moved.at[..., rows, columns].set(
        cast(src, self.dtype), unique_indices=True, mode="promise_in_bounds"
    )
    return jnp.moveaxis(out, (-2, -1), (dim1, dim2))
