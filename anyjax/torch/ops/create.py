"""Factories, triangles and diagonals, and tensors as Python values.

A factory whose arguments are all numbers reaches the table only when its result is large.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.torch.core.schema import aten, lowers, table
from anyjax.torch.ops._operands import cast, common, default_float, default_int, number, operands


def filled(size, value, dtype, /):
    """torch infers a missing dtype from the value."""
    if dtype is None:
        dtype = common(value)
    return lax.full(size, number(value, dtype), dtype)


def _constant(value):
    return lambda size, dtype: lax.full(size, value, dtype or default_float())


def _new(value):
    return lambda self, size, dtype: lax.full(size, value, dtype or self.dtype)


def _alike(value):
    return lambda self, dtype: lax.full(self.shape, value, dtype or self.dtype)


table.update(
    {
        aten.zeros.default: _constant(0),
        aten.ones.default: _constant(1),
        aten.empty.memory_format: _constant(0),
        aten.empty_strided: lambda size, stride, dtype: _constant(0)(size, dtype),
        aten.empty_permuted: lambda size, physical_layout, dtype: _constant(0)(size, dtype),
        aten.full.default: filled,
        aten.zeros_like: _alike(0),
        aten.ones_like: _alike(1),
        aten.empty_like: _alike(0),
        aten.full_like: lambda self, fill_value, dtype: filled(
            self.shape, fill_value, dtype or self.dtype
        ),
        aten.new_zeros: _new(0),
        aten.new_ones: _new(1),
        aten.new_empty: _new(0),
        aten.new_empty_strided: lambda self, size, stride, dtype: _new(0)(self, size, dtype),
        aten.new_full: lambda self, size, fill_value, dtype: filled(
            size, fill_value, dtype or self.dtype
        ),
        aten.fill.Scalar: lambda self, value: filled(self.shape, value, self.dtype),
        aten.fill.Tensor: lambda self, value: lax.broadcast(cast(value, self.dtype), self.shape),
        aten.zero: lambda self: filled(self.shape, 0, self.dtype),
        aten.scalar_tensor: lambda s, dtype: filled((), s, dtype or default_float()),
        aten.polar: lambda abs, angle: lax.complex(
            *operands(abs * lax.cos(angle), abs * lax.sin(angle))
        ),
        aten.eye.default: lambda n, dtype: jnp.eye(n, dtype=dtype or default_float()),
        aten.eye.m: lambda n, m, dtype: jnp.eye(n, m, dtype=dtype or default_float()),
        aten.tril_indices: lambda row, col, offset, dtype: _indices(
            jnp.tril_indices(row, offset, col), dtype
        ),
        aten.triu_indices: lambda row, col, offset, dtype: _indices(
            jnp.triu_indices(row, offset, col), dtype
        ),
        aten.tril: jnp.tril,
        aten.triu: jnp.triu,
        aten._local_scalar_dense: lambda self: self.item(),
        aten.equal: lambda self, other: self.shape == other.shape and bool(jnp.all(self == other)),
        aten.allclose: lambda self, other, rtol, atol, equal_nan: bool(
            jnp.allclose(self, other, rtol, atol, equal_nan)
        ),
    }
)


def _indices(pair, dtype):
    return jnp.stack(pair).astype(dtype)


def _values(first, count, step, dtype):
    """first + i * step, counted in integers where all is integer."""
    exact = not any(isinstance(v, float) for v in (first, step))
    kind = dtype or (default_int() if exact else default_float())
    if kind.kind in "iu":  # torch cuts both before it counts
        first, step, exact = (int(v) if isinstance(v, float) else v for v in (first, step, True))
        first, _ = (number(v, kind) for v in (first, first + jax.core.max_dim(count - 1, 0) * step))
    steps = lax.iota(default_int() if exact else np.promote_types(kind, np.float32), count)
    return cast(first + steps * step, kind)


@lowers(aten.arange.start_step)
def arange(start, end, step, dtype):
    if any(isinstance(v, float) for v in (start, end, step)):
        count = max(0, math.ceil((end - start) / step))
        return _values(start, count, step, dtype or default_float())
    return _values(start, jax.core.max_dim(-((start - end) // step), 0), step, dtype)


table.update(
    {
        aten.arange.default: lambda end, dtype: arange(0, end, 1, dtype),
        aten.arange.start: lambda start, end, dtype: arange(start, end, 1, dtype),
    }
)


@lowers(aten.linspace)
def linspace(start, end, steps, dtype):
    """Counted from both ends, so that both are exact; integer dtypes cut the bounds first."""
    dtype = dtype or _float_of(start, end)
    start, end = _bounds(start, end, dtype)
    kind = dtype if dtype.kind in "fc" else np.promote_types(default_float(), np.float32)
    start, end = jnp.asarray(start, kind), jnp.asarray(end, kind)
    if steps == 1:
        return start.reshape(1).astype(dtype)
    index = lax.iota(default_int(), steps)
    step = (end - start) / (steps - 1)
    values = jnp.where(index < steps // 2, start + step * index, end - step * (steps - 1 - index))
    return values.astype(dtype)


def _float_of(start, end):
    """torch's default float, or its complex type where a bound is complex."""
    return common(1j if jnp.iscomplexobj(start) or jnp.iscomplexobj(end) else 1.0)


def _bounds(start, end, dtype):
    return (jnp.trunc(start), jnp.trunc(end)) if dtype.kind in "iu" else (start, end)


@lowers(aten.logspace)
def logspace(start, end, steps, base, dtype):
    dtype = dtype or _float_of(start, end)
    start, end = _bounds(start, end, dtype)
    return (base ** linspace(start, end, steps, _float_of(start, end))).astype(dtype)


@lowers(aten.diag_embed)
def diag_embed(self, offset, dim1, dim2):
    size = self.shape[-1] + abs(offset)
    column = lax.broadcasted_iota(default_int(), (self.shape[-1], size), 1)
    row = lax.broadcasted_iota(default_int(), (self.shape[-1], size), 0)
    rows = jnp.where(column == row + max(offset, 0), self[..., None], self.dtype.type(0))
    pads = [(0, 0, 0)] * (self.ndim - 1) + [(max(-offset, 0), max(offset, 0), 0), (0, 0, 0)]
    square = lax.pad(rows, self.dtype.type(0), pads)
    return jnp.moveaxis(square, (-2, -1), (dim1, dim2))


@lowers(aten._new_zeros_with_same_feature_meta)
def zeros_for_tangents(self, other, self_num_batch_dims):
    """torch.func's forward mode: shaped as ``other``, behind the batch dimensions of ``self``."""
    return jnp.zeros(self.shape[:self_num_batch_dims] + other.shape, self.dtype)


@lowers(aten._has_same_storage_numel)
def has_same_storage_numel(self, other):
    """An array is all of its memory."""
    return self.size == other.size
