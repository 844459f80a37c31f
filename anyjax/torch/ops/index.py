"""Indexing: torch's advanced indices, gathering, masks and their static forms.

torch raises for positions outside an array; a compiled program cannot. Here such positions are
undefined, as in XLA ("promise_in_bounds"): reads give some element of the array, writes are
dropped. Negative positions count from the end where torch lets them. A boolean mask that selects
elements decides a shape, so it must be concrete; one that is assigned to is not, because the same
numbers come out of ``where``.
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.private_names import known_arguments
from anyjax.torch.core.schema import aten, lowers
from anyjax.torch.ops._operands import broadcast, cast, default_int, number

FAST = "promise_in_bounds"
NO_WRAP = known_arguments(jnp.take_along_axis, wrap_negative_indices=False)  # JAX 0.10.2


def known(x) -> np.ndarray:
    """The values of an array that is no tracer."""
    if isinstance(x, jax.core.Tracer):
        raise jax.errors.ConcretizationTypeError(x, "these values decide the shape of a result")
    return np.asarray(x)


def wrap(index, size: int):
    """Negative positions count from the end."""
    return lax.select(index < 0, index + number(size, index.dtype), index)


def add(place, values):
    """Adds at ``x.at[index]``; the sum of bools is whether any holds."""
    function = place.max if values.dtype == np.bool_ else place.add
    return function(values, mode=FAST, wrap_negative_indices=False)


def spot(axes: tuple[int, ...], arrays) -> tuple:
    """An index for ``at``: these arrays on these axes, and all of the others."""
    at: list = [slice(None)] * (axes[-1] + 1)
    for axis, array in zip(axes, arrays, strict=True):
        at[axis] = array
    return tuple(at)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _assigned(axes, x, values, arrays):
    place = x.at[spot(axes, arrays)]
    return place.set(values, mode=FAST, wrap_negative_indices=False)


@_assigned.defjvp
def _assigned_jvp(axes, primals, tangents):
    (x, values, arrays), (dx, dvalues, _) = primals, tangents
    unassigned = _assigned(axes, jnp.ones(x.shape, bool), False, arrays)
    dx = lax.select(unassigned, dx, jnp.zeros_like(dx))
    return _assigned(axes, x, values, arrays), add(dx.at[spot(axes, arrays)], dvalues)


def assign(self, at: tuple, values):
    """``values`` at the places ``at``. Of those for one place one stays, undefined which, but all
    of them get its gradient, as in torch.
    """
    axes = tuple(axis for axis, index in enumerate(at) if not isinstance(index, slice))
    return _assigned(axes, self, values, [at[axis] for axis in axes])


def is_mask(index) -> bool:
    return index is not None and index.dtype in (np.bool_, np.uint8)


def positions(self, indices) -> tuple:
    """torch's ``indices`` as an index for ``at``; a mask becomes the places that it selects."""
    out, axis = [], 0
    for index in indices:
        if index is None:
            out.append(slice(None))
            axis += 1
        elif is_mask(index):
            out.extend(known(index).nonzero())
            axis += index.ndim
        else:
            index = cast(index, "int32") if index.dtype.itemsize < 4 else index
            out.append(wrap(index, self.shape[axis]))
            axis += 1
    return tuple(out)


@lowers(aten.index.Tensor, aten._unsafe_index.Tensor)
def index(self, indices):
    """Adjacent indices keep their place in the result, separated ones go first, as in NumPy."""
    return self.at[positions(self, indices)].get(mode=FAST, wrap_negative_indices=False)


def rows(x, index, axis: int):
    """``x`` at the positions of an index, whose axes replace one of x's."""
    if x.ndim == 0:
        return broadcast(x, index.shape)
    place = (*[slice(None)] * (axis % x.ndim), index)
    return x.at[place].get(mode=FAST, wrap_negative_indices=False)


@lowers(aten.gather)
def gather(self, dim, index, sparse_grad):
    """The index may be shorter than ``self`` along the other axes."""
    if not index.size:
        return jnp.zeros(index.shape, self.dtype)
    if self.ndim == 0 or index.ndim == 0:
        return lax.reshape(rows(lax.reshape(self, (self.size,)), index, 0), index.shape)
    dim %= self.ndim
    sizes = [n if i == dim else m for i, (n, m) in enumerate(zip(self.shape, index.shape))]
    self = lax.slice(self, (0,) * self.ndim, sizes)
    return jnp.take_along_axis(self, index, dim, mode=FAST, **NO_WRAP)


@lowers(aten.index_select)
def index_select(self, dim, index):
    """A 0-d ``self`` or index counts as 1-d."""
    if self.ndim == 0:
        return self
    return rows(self, lax.reshape(index, (index.size,)), dim)


@lowers(aten.take)
def take(self, index):
    if not index.size:
        return jnp.zeros(index.shape, self.dtype)
    return rows(lax.reshape(self, (self.size,)), wrap(index, self.size), 0)


@lowers(aten.put)
def put(self, index, source, accumulate):
    if not index.size:
        return self
    index, source = (lax.reshape(x, (x.size,)) for x in (index, cast(source, self.dtype)))
    flat, index = lax.reshape(self, (self.size,)), wrap(index, self.size)
    out = add(flat.at[index], source) if accumulate else assign(flat, (index,), source)
    return lax.reshape(out, self.shape)


@lowers(aten.masked_fill)
def masked_fill(self, mask, value):
    shape = lax.broadcast_shapes(self.shape, mask.shape)
    value = cast(value, self.dtype) if isinstance(value, jax.Array) else number(value, self.dtype)
    return lax.select(broadcast(mask, shape), broadcast(value, shape), broadcast(self, shape))


@lowers(aten.masked_select)
def masked_select(self, mask):
    shape = lax.broadcast_shapes(self.shape, mask.shape)
    (chosen,) = np.broadcast_to(known(mask), shape).reshape(-1).nonzero()
    return rows(lax.reshape(broadcast(self, shape), (math.prod(shape),)), chosen, 0)


def spread(values, mask):
    """Consecutive ``values`` for the true places of a mask, in order; anything elsewhere."""
    order = lax.cumsum(lax.reshape(mask, (mask.size,)).astype(default_int())) - 1
    order = lax.clamp(order.dtype.type(0), order, order.dtype.type(values.shape[0] - 1))
    return lax.reshape(rows(values, order, 0), (*mask.shape, *values.shape[1:]))


@lowers(aten.masked_scatter)
def masked_scatter(self, mask, source):
    shape = lax.broadcast_shapes(self.shape, mask.shape)
    mask, self = broadcast(mask, shape), broadcast(self, shape)
    if not self.size or not source.size:
        return self
    return lax.select(mask, spread(lax.reshape(source, (source.size,)), mask), self)


@lowers(aten.masked_scatter_backward)
def masked_scatter_backward(grad_output, mask, sizes):
    """The selected gradients in front, zeros after them: a stable sort instead of a selection."""
    mask = broadcast(mask, grad_output.shape)
    flat = lax.reshape(lax.select(mask, grad_output, jnp.zeros_like(grad_output)), (mask.size,))
    order = jnp.argsort(~lax.reshape(mask, (mask.size,)), stable=True)
    return lax.reshape(rows(flat, order[: math.prod(sizes)], 0), sizes)


def put_where(self, axis, mask, values, accumulate):
    """Assigns to the true places of a mask that starts at ``axis``, without knowing how many."""
    trailing = self.ndim - axis - mask.ndim
    place = values.ndim - 1 - trailing  # the axis of values that counts the true places
    if place >= 0 and values.shape[place] == 1:
        ones = (1,) * mask.ndim
        values = lax.reshape(values, (*values.shape[:place], *ones, *values.shape[place + 1 :]))
    elif place >= 0:
        values = spread(jnp.moveaxis(values, place, 0), mask)
        values = jnp.moveaxis(values, range(mask.ndim), range(place, place + mask.ndim))
    values = broadcast(values, self.shape)
    mask = broadcast(lax.reshape(mask, (*mask.shape, *(1,) * trailing)), self.shape)
    return lax.select(mask, jnp.add(self, values) if accumulate else values, self)


@lowers(aten.index_put, aten._unsafe_index_put)
def index_put(self, indices, values, accumulate):
    """One mask on its own is ``where``; masks beside other indices must be concrete."""
    values = cast(values, self.dtype)
    indexed = [(i, x) for i, x in enumerate(indices) if x is not None]
    if not values.size or not self.size:
        return self
    if len(indexed) == 1 and is_mask(indexed[0][1]):
        axis, mask = indexed[0]
        return put_where(self, axis, mask.astype(bool), values, accumulate)
    at = positions(self, indices)
    return add(self.at[at], values) if accumulate else assign(self, at, values)


@lowers(aten._index_put_impl)
def index_put_impl(self, indices, values, accumulate, unsafe):
    return index_put(self, indices, values, accumulate)


@lowers(aten.repeat_interleave.Tensor)
def repeat_interleave(repeats, output_size):
    """The output's length is the sum of ``repeats``, unless ``output_size`` gives it."""
    total = int(known(repeats).sum()) if output_size is None else output_size
    return jnp.repeat(jnp.arange(repeats.size), repeats, total_repeat_length=total)


@lowers(aten.nonzero)
def nonzero(self):
    return jnp.asarray(np.argwhere(known(self)), default_int())


@lowers(aten.nonzero_static)
def nonzero_static(self, size, fill_value):
    if not self.size:
        return jnp.full((size, self.ndim), fill_value, default_int())
    return jnp.argwhere(self, size=size, fill_value=fill_value)
