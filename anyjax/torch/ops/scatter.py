"""Writing to positions: scatter, index_add, index_copy and their reductions.

Positions outside an array raise in torch; here such writes are dropped (see index.py). Where
several values are assigned to one place, which one stays is undefined in torch as well.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.numerics.scatter import multiply_at
from anyjax.torch.core.schema import aten, lowers
from anyjax.torch.ops._operands import cast, exact, number
from anyjax.torch.ops.index import FAST, add, assign, wrap


def place(index, dim: int) -> tuple:
    """An index for ``at``: ``index`` along ``dim``, each place itself along the other axes."""
    iota = lambda d: lax.broadcasted_iota(index.dtype, index.shape, d)
    return tuple(index if d == dim else iota(d) for d in range(index.ndim))


def write(function):
    """A lowering's body for arrays with axes: torch takes 0-d tensors for 1-d ones."""

    @functools.wraps(function)
    def body(self, dim, index, src, *rest):
        if self.ndim == 0 or index.ndim == 0:
            flat = lambda x: lax.reshape(x, (x.size,)) if isinstance(x, jax.Array) else x
            return lax.reshape(body(flat(self), 0, flat(index), flat(src), *rest), self.shape)
        if isinstance(src, jax.Array):
            src = lax.slice(cast(src, self.dtype), (0,) * src.ndim, index.shape)
        else:
            src = jnp.full(index.shape, number(src, self.dtype))
        return function(self, dim % self.ndim, index, src, *rest) if index.size else self

    return body


@lowers(aten.scatter.src, aten.scatter.value)
@write
def scatter(self, dim, index, src, /):
    return assign(self, place(index, dim), src)


HOW = {"add": "sum", "mul": "prod", "multiply": "prod"}


@lowers(aten.scatter.reduce, aten.scatter.value_reduce, aten.scatter_add, aten.scatter_reduce.two)
@write
def combine(self, dim, index, src, how="sum", include_self=True, /):
    at, how = place(index, dim), HOW.get(how, how)
    start = self if include_self else self.at[at].set(neutral(how, self.dtype), mode=FAST)
    if how in ("amax", "amin"):
        return extreme(start, src, at, how == "amax")
    if how == "prod" and self.dtype == np.bool_:
        return start.at[at].min(src, mode=FAST)
    if how == "prod":
        return multiply_at(start, at, src, FAST)
    total = add(start.at[at], src)
    if how == "sum":
        return total
    count = jnp.ones(self.shape, "int32")
    count = count if include_self else count.at[at].set(0, mode=FAST)
    count = jnp.maximum(count.at[at].add(1, mode=FAST), 1)
    return total // count.astype(self.dtype) if exact(self) else total / count.astype(self.dtype)


def neutral(how: str, dtype):
    """Returns the number that a reduction starts from where ``self`` does not count."""
    if how in ("sum", "mean", "prod"):
        return dtype.type(how == "prod")
    sign = -1 if how == "amax" else 1
    if dtype == np.bool_:
        return sign > 0
    if jnp.issubdtype(dtype, jnp.inexact):
        return dtype.type(sign * np.inf)
    return jnp.iinfo(dtype).min if sign < 0 else jnp.iinfo(dtype).max


def extreme(x, src, at, largest: bool):
    return (highest if largest else lowest)(x, src, at)


def _extreme(name: str):
    @jax.custom_jvp
    def function(x, src, at):
        return getattr(x.at[at], name)(src, mode=FAST)

    @function.defjvp
    def jvp(primals, tangents):
        """torch shares the gradient among all that are equal to the result."""
        (x, src, at), (dx, dsrc, _) = primals, tangents
        out = function(x, src, at)
        hit_x, hit = (x == out).astype(x.dtype), (src == out[at]).astype(x.dtype)
        count = hit_x.at[at].add(hit, mode=FAST)
        return out, (dx * hit_x).at[at].add(dsrc * hit, mode=FAST) / count

    return function


highest, lowest = _extreme("max"), _extreme("min")


@lowers(aten.index_reduce)
def index_reduce(self, dim, index, source, reduce, include_self):
    """The index repeated along the other axes makes it scatter_reduce."""
    dim = dim % self.ndim if self.ndim else 0
    shape = source.shape or (1,)
    index = lax.broadcast_in_dim(lax.reshape(index, (index.size,)), shape, (dim,))
    return combine(self, dim, index, lax.reshape(source, shape), reduce, include_self)


def slices(self, dim, index, source, write):
    """``write(self, at, source)`` to the slices of ``self`` that a 1-d index names; the source is
    an array or a number.
    """
    if self.ndim == 0:
        out = slices(lax.reshape(self, (1,)), 0, index, jnp.reshape(source, (-1,)), write)
        return lax.reshape(out, ())
    dim %= self.ndim
    index = lax.reshape(index, (index.size,))
    if isinstance(source, jax.Array) and source.ndim:
        source = lax.reshape(source, (*self.shape[:dim], index.size, *self.shape[dim + 1 :]))
    return write(self, (*[slice(None)] * dim, index), source)


def fill(self, at, value):
    return self.at[at].set(value, mode=FAST, wrap_negative_indices=False)


@lowers(aten.index_add)
def index_add(self, dim, index, source, alpha):
    source = cast(source, self.dtype)
    source = source if alpha == 1 else source * number(alpha, self.dtype)
    return slices(self, dim, index, source, lambda x, at, values: add(x.at[at], values))


@lowers(aten.index_copy)
def index_copy(self, dim, index, source):
    return slices(self, dim, index, cast(source, self.dtype), assign)


@lowers(aten.index_fill)
def index_fill(self, dim, index, value):
    """Negative positions count from the end, unlike those of its siblings."""
    size = self.shape[dim] if self.ndim else 1
    is_array = isinstance(value, jax.Array)
    value = cast(value, self.dtype) if is_array else number(value, self.dtype)
    return slices(self, dim, wrap(index, size), value, fill)
