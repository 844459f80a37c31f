"""Sorting, selection by rank, search in sorted arrays, unique values."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.dtypes import is_float
from anyjax.numerics.bisection import bisect
from anyjax.torch.aliasing.no_grad import with_gradient_of
from anyjax.torch.core.schema import aten, lowers, table
from anyjax.torch.ops._operands import along, cast, common, default_int, number, select
from anyjax.torch.ops.reduce import pick


def sort(self, dim, descending):
    """Stable, NaN counts as the largest; (values, indices)."""
    if not self.ndim:
        return self, jnp.zeros((), default_int())
    axis = dim % self.ndim
    flip = (lambda x: lax.rev(x, (axis,))) if descending else lambda x: x
    place = lax.broadcasted_iota(default_int(), self.shape, axis)
    values, index = lax.sort((flip(self), flip(place)), dimension=axis, is_stable=True, num_keys=1)
    return flip(values), flip(index)


table.update(
    {
        aten.sort.default: sort,
        aten.sort.stable: lambda self, stable, dim, descending: sort(self, dim, descending),
        aten.argsort.default: lambda self, dim, descending: sort(self, dim, descending)[1],
        aten.argsort.stable: lambda self, stable, dim, descending: sort(self, dim, descending)[1],
        aten.msort: lambda self: sort(self, 0, False)[0],
    }
)


@lowers(aten.topk)
@along
def topk(self, k, dim, largest, sorted):
    axis = dim % self.ndim
    if largest and axis == self.ndim - 1 and self.dtype.kind != "b":
        values, index = lax.top_k(self, k)
        return values, cast(index, default_int())
    return tuple(lax.slice_in_dim(x, 0, k, axis=axis) for x in sort(self, axis, largest))


@lowers(aten.kthvalue)
@along
def kthvalue(self, k, dim, keepdim):
    axis = dim % self.ndim
    _, index = sort(lax.stop_gradient(self), axis, False)
    return pick(self, lax.slice_in_dim(index, k - 1, k, axis=axis), axis, keepdim)


@along
def _median(self, dim, keepdim, skip_nan):
    """The lower of two middle elements; NaN wins over everything, unless skipped."""
    axis = dim % self.ndim
    x = lax.stop_gradient(self)
    _, order = sort(x, axis, False)
    nans = jnp.sum(x != x, axis, keepdims=True, dtype=order.dtype)
    count = self.shape[axis]
    rank = (count - nans - 1) // 2 if skip_nan else select(nans > 0, count - nans, (count - 1) // 2)
    return pick(
        self, jnp.take_along_axis(order, lax.max(rank, order.dtype.type(0)), axis), axis, keepdim
    )


def _median_of_all(self, skip_nan):
    if not self.size:
        return jnp.full((), np.nan, self.dtype)
    return _shared(self, _median(lax.reshape(self, (self.size,)), 0, False, skip_nan)[0])


def _shared(x, out):
    """An element of x, whose gradient all that are equal to it share; NaN is equal to NaN."""
    hit = (x == out) | ((x != x) & (out != out))
    mean = jnp.sum(select(hit, x, 0)) / jnp.sum(hit, dtype=x.dtype)
    return with_gradient_of(mean, out) if is_float(x.dtype) else out


table.update(
    {
        aten.median.default: lambda self: _median_of_all(self, False),
        aten.median.dim: lambda self, dim, keepdim: _median(self, dim, keepdim, False),
        aten.nanmedian.default: lambda self: _median_of_all(self, True),
        aten.nanmedian.dim: lambda self, dim, keepdim: _median(self, dim, keepdim, True),
    }
)


@lowers(aten.mode)
@along
def mode(self, dim, keepdim):
    """The smallest of the most frequent elements, at its last place."""
    axis = dim % self.ndim
    x = jnp.moveaxis(lax.stop_gradient(self), axis, -1)
    ordered, order = sort(x, -1, False)
    place = lax.broadcasted_iota(default_int(), x.shape, x.ndim - 1)
    starts = jnp.concatenate(
        [jnp.ones_like(ordered[..., :1], bool), ordered[..., 1:] != ordered[..., :-1]], -1
    )
    run = place - lax.cummax(
        select(starts, place, 0), x.ndim - 1
    )  # how many equal ones came before
    last = jnp.argmax(run, -1, keepdims=True)
    index = jnp.moveaxis(jnp.take_along_axis(order, last, -1), -1, axis)
    return pick(self, index, axis, keepdim)


def search(sorted_sequence, values, right, dtype):
    """Along the last axis, batch by batch where the sequence has batches; NaN comes after all."""
    precedes = (lambda x, v: ~(x > v)) if right else (lambda x, v: ~(x >= v))
    rows = lax.reshape(values, (values.size,)) if sorted_sequence.ndim == 1 else values
    places = bisect(*map(lax.stop_gradient, (sorted_sequence, rows)), precedes)
    return lax.reshape(cast(places, dtype), values.shape)


@lowers(aten.searchsorted.Tensor, aten.searchsorted.Scalar)
def searchsorted(sorted_sequence, self, out_int32, right, side, sorter):
    if sorter is not None:
        sorted_sequence = jnp.take_along_axis(sorted_sequence, sorter, -1)
    return search(
        sorted_sequence, *_found(self, sorted_sequence, right or side == "right", out_int32)
    )


@lowers(aten.bucketize.Tensor, aten.bucketize.Scalar)
def bucketize(self, boundaries, out_int32, right):
    return search(boundaries, *_found(self, boundaries, right, out_int32))


def _found(values, sequence, right, out_int32):
    dtype = np.dtype("int32") if out_int32 else default_int()
    if not isinstance(values, jax.Array):
        values = jnp.asarray(number(values, common(values, sequence)))
    return values, right, dtype


@lowers(aten._unique2)
def unique2(self, sorted, return_inverse, return_counts):
    return _unique(self, None, return_inverse, return_counts)


@lowers(aten._unique)
def unique(self, sorted, return_inverse):
    return _unique(self, None, return_inverse, False)[:2]


@lowers(aten.unique_dim)
def unique_dim(self, dim, sorted, return_inverse, return_counts):
    return _unique(self, dim, return_inverse, return_counts)


def _unique(x, axis, inverse, counts):
    """Results that are not asked for are empty."""
    values, places, numbers = jnp.unique(
        x, return_inverse=True, return_counts=True, axis=axis, equal_nan=False
    )
    empty = jnp.zeros(0, default_int())
    return (
        values,
        places.astype(default_int()) if inverse else empty,
        numbers.astype(default_int()) if counts else empty,
    )


@lowers(aten.unique_consecutive)
def unique_consecutive(self, return_inverse, return_counts, dim):
    """Runs of equal slices; without ``dim`` the array is flattened, but not its inverse."""
    x = self.reshape(-1) if dim is None else jnp.moveaxis(self, dim, 0)
    rows = x.reshape(x.shape[0], math.prod(x.shape[1:]))
    starts = jnp.concatenate(
        [jnp.ones(min(1, x.shape[0]), bool), jnp.any(rows[1:] != rows[:-1], 1)]
    )
    (first,) = jnp.nonzero(starts)
    inverse = jnp.cumsum(starts, dtype=default_int()) - 1
    counts = jnp.diff(jnp.append(first, x.shape[0])).astype(default_int())
    values = x[first] if dim is None else jnp.moveaxis(x[first], 0, dim)
    empty = jnp.zeros(0, default_int())
    inverse = inverse.reshape(self.shape) if dim is None else inverse
    return values, inverse if return_inverse else empty, counts if return_counts else empty


@lowers(aten.unique_dim_consecutive)
def unique_dim_consecutive(self, dim, return_inverse, return_counts):
    return unique_consecutive(self, return_inverse, return_counts, dim)
