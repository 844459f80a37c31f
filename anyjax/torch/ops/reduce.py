"""Reductions over axes and running reductions along one."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.dtypes import x64
from anyjax.errors import Unsupported
from anyjax.torch.core.schema import aten, lowers, table
from anyjax.torch.ops._operands import (
    absolute,
    along,
    axes_of,
    cast,
    default_int,
    exact,
    floating,
    length,
    like,
    select,
    wide,
    widened,
)
from anyjax.torch.ops._xla_cpu import apart
from anyjax.torch.ops.polar import logaddexp


def _summed(x, dtype):
    """Sums of integers and bools are int64 in torch, unless a dtype is asked for."""
    return cast(x, default_int() if dtype is None and exact(x) else dtype)


def _sum(x, dim, keepdim, dtype, /):
    return apart(jnp.sum(_summed(x, dtype), axes_of(x, dim), keepdims=keepdim, dtype=dtype))


def _prod(x, dim, keepdim, dtype, /):
    x = _summed(x, dtype)
    return jnp.prod(x, axes_of(x, dim), keepdims=keepdim, dtype=x.dtype)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def _reduced(function, axes, everywhere, x):
    return function(x, axes, keepdims=True)


@_reduced.defjvp
def _reduced_jvp(function, axes, everywhere, primals, tangents):
    """Equal elements share the gradient; that of NaN is NaN ``everywhere``, or that of each NaN."""
    (x,), (tangent,) = primals, tangents
    out = function(x, axes, keepdims=True)
    mine = x == out if everywhere else (x == out) | (x != x)
    ones = wide(mine.astype(x.dtype))
    share = ones / jnp.sum(ones, axes, keepdims=True)
    share = select(out != out, np.nan, share) if everywhere else share
    return out, jnp.sum(tangent * share.astype(x.dtype), axes, keepdims=True)


def _extreme(function, everywhere=True):
    def lowering(self, dim=None, keepdim=False):
        axes = axes_of(self, dim)
        if exact(self):
            return apart(function(self, axes, keepdims=keepdim))
        out = _reduced(function, axes, everywhere, self)
        return apart(out if keepdim else lax.squeeze(out, axes))

    return lowering


_amax, _amin = _extreme(jnp.max), _extreme(jnp.min)


def _both(self, dim, keepdim):
    return _amin(self, dim, keepdim), _amax(self, dim, keepdim)


def _boolean(function):
    """uint8 stays uint8 in torch."""

    def lowering(self, dim, keepdim):
        out = function(self, axes_of(self, dim), keepdims=keepdim)
        return out.astype(self.dtype) if self.dtype == np.uint8 else out

    return lowering


def _mean(self, dim, keepdim, dtype):
    x, axes = cast(self, dtype), axes_of(self, dim)
    count = length(x, axes)
    if x.dtype != np.float32 or not isinstance(count, int) or not count:
        return jnp.mean(x, axes, keepdims=keepdim)
    out = lax.div(lax.reduce_sum(x, axes), np.float32(count))  # what jnp does, in a call of its own
    return lax.expand_dims(out, axes) if keepdim else out


_all, _any = _boolean(jnp.all), _boolean(jnp.any)

table.update(
    {
        aten.sum.default: lambda self, dtype: _sum(self, None, False, dtype),
        aten.sum.dim_IntList: _sum,
        aten.mean.default: lambda self, dtype: jnp.mean(cast(self, dtype)),
        aten.mean.dim: _mean,
        aten.prod.default: lambda self, dtype: _prod(self, None, False, dtype),
        aten.prod.dim_int: _prod,
        aten.nansum: lambda self, dim, keepdim, dtype: _sum(
            select(self != self, 0, self), dim, keepdim, dtype
        ),
        aten.amax: lambda self, dim, keepdim: _amax(self, dim, keepdim),
        aten.amin: lambda self, dim, keepdim: _amin(self, dim, keepdim),
        aten.max.default: lambda self: _extreme(jnp.max, False)(self),
        aten.min.default: lambda self: _extreme(jnp.min, False)(self),
        aten.aminmax: _both,
        aten._aminmax.default: lambda self: _both(self, None, False),
        aten._aminmax.dim: _both,
        aten.all.default: lambda self: _all(self, None, False),
        aten.all.dim: _all,
        aten.all.dims: lambda self, dim, keepdim: (
            self != 0 if dim == [] else _all(self, dim, keepdim)
        ),
        aten.any.default: lambda self: _any(self, None, False),
        aten.any.dim: _any,
        aten.any.dims: lambda self, dim, keepdim: (
            self != 0 if dim == [] else _any(self, dim, keepdim)
        ),
        aten._is_all_true: jnp.all,
        aten._is_any_true: jnp.any,
    }
)


@lowers(aten.count_nonzero)
def count_nonzero(self, dim):
    return jnp.sum(self != 0, axes_of(self, dim), dtype=default_int())


@lowers(aten.var_mean.correction)
def var_mean(self, dim, correction, keepdim):
    """``correction`` is subtracted from the count; 16-bit floats are summed in float32."""
    axes, x = axes_of(self, dim), wide(self)
    mean = jnp.mean(x, axes, keepdims=True)
    count = length(x, axes) - (1 if correction is None else correction)
    centred = x - mean
    squares = squared_size(centred)
    var = jnp.sum(squares, axes, keepdims=keepdim) / like(squares, max(count, 0))
    mean = mean if keepdim else lax.squeeze(mean, axes)
    return cast(var, None if x.dtype.kind == "c" else self.dtype), cast(mean, self.dtype)


def squared_size(x):
    """x * conj(x), real."""
    if x.dtype.kind != "c":
        return lax.integer_pow(x, 2)
    return lax.integer_pow(lax.real(x), 2) + lax.integer_pow(lax.imag(x), 2)


def safe_sqrt(x):
    """A square root whose gradient at 0 is 0, as for torch's norms and standard deviations."""
    zero = x == 0
    return select(zero, like(x, 0), lax.sqrt(select(zero, like(x, 1), x)))


@lowers(aten.std_mean.correction)
def std_mean(self, dim, correction, keepdim):
    var, mean = var_mean(wide(self), dim, correction, keepdim)
    kind = self.dtype if self.dtype.kind != "c" else None
    return cast(safe_sqrt(var), kind), cast(mean, self.dtype)


table.update(
    {
        aten.var.correction: lambda self, dim, correction, keepdim: var_mean(
            self, dim, correction, keepdim
        )[0],
        aten.std.correction: lambda self, dim, correction, keepdim: std_mean(
            self, dim, correction, keepdim
        )[0],
    }
)


@lowers(aten.logsumexp)
def logsumexp(self, dim, keepdim):
    """Shifted by the maximum where that is finite."""
    x, axes = wide(floating(self)), axes_of(self, dim)
    if not x.size:
        return jnp.log(jnp.sum(x, axes, keepdims=keepdim))
    high = lax.stop_gradient(jnp.max(x.real, axes, keepdims=True))
    high = select(abs(high) == np.inf, like(high, 0), high)
    out = jnp.log(jnp.sum(lax.exp(x - high), axes, keepdims=True)) + high
    return cast(out if keepdim else lax.squeeze(out, axes), floating(self).dtype)


@lowers(aten.linalg_vector_norm)
def vector_norm(self, ord, dim, keepdim, dtype):
    """The norm at 0 has gradient 0; complex numbers count by their size."""
    x, axes = wide(cast(self, dtype)), axes_of(self, dim)
    result = dtype or self.dtype
    if ord == 2:
        out = safe_sqrt(jnp.sum(squared_size(x), axes, keepdims=keepdim))
    else:
        out = _other_norm(absolute(x), ord, axes, keepdim)
    return cast(out, result) if result.kind != "c" else out


def _other_norm(size, ord, axes, keepdim):
    if abs(ord) == math.inf:
        return (jnp.max if ord > 0 else jnp.min)(size, axes, keepdims=keepdim)
    if ord == 0:
        return jnp.sum(size != 0, axes, keepdims=keepdim, dtype=size.dtype)
    if ord == 1:
        return jnp.sum(size, axes, keepdims=keepdim)
    zero = size == 0
    powers = lax.pow(select(zero, like(size, 1), size), like(size, ord))
    total = jnp.sum(select(zero, 0.0 if ord > 0 else math.inf, powers), axes, keepdims=keepdim)
    zero = total == 0
    root = lax.pow(select(zero, like(size, 1), total), like(size, 1 / ord))
    return select(zero, 0.0 if ord > 0 else math.inf, root)


def _norm(self, p, dim=None, keepdim=False, dtype=None, /):
    return vector_norm(self, 2 if p is None else p, dim, keepdim, dtype)


table.update(
    {
        aten.norm.Scalar: _norm,
        aten.norm.ScalarOpt_dtype: lambda self, p, dtype: _norm(self, p, None, False, dtype),
        aten.norm.ScalarOpt_dim: _norm,
        aten.norm.ScalarOpt_dim_dtype: _norm,
        aten.dist: lambda self, other, p: _norm(self - other, p),
    }
)


def pick(x, index, axis, keepdim):
    """The elements (and gradient) at ``index``, whose ``axis`` is kept with length 1; and it."""
    values = jnp.take_along_axis(x, index, axis)
    return (
        (values, index) if keepdim else (lax.squeeze(values, (axis,)), lax.squeeze(index, (axis,)))
    )


def _cumulative(function):
    @along
    def lowering(self, dim, dtype):
        x = _summed(self, dtype)
        return apart(cast(function(wide(x), dim % self.ndim), x.dtype))

    return lowering


def _logcumsumexp(self, dim):
    """``lax.cumlogsumexp`` is such a scan, too, with wrong gradients next to infinities."""
    return lax.associative_scan(logaddexp, self, axis=dim)


def _first(function):
    """max.dim and min.dim: the first extreme element and its index."""

    @along
    def lowering(self, dim, keepdim):
        dim %= self.ndim
        index = function(
            self.astype(np.int8) if self.dtype.kind == "b" else self, dim, default_int()
        )
        return pick(self, lax.expand_dims(index, (dim,)), dim, keepdim)

    return lowering


def _arg(function):
    def lowering(self, dim, keepdim):
        axis = 0 if dim is None or not self.ndim else dim % self.ndim
        x = lax.reshape(self, (self.size,)) if dim is None or not self.ndim else self
        x = x.astype(np.int8) if x.dtype.kind == "b" else x
        index = function(x, axis, default_int())
        if dim is None or not self.ndim:
            return index.reshape((1,) * self.ndim if keepdim else ())
        return lax.expand_dims(index, (axis,)) if keepdim else index

    return lowering


table.update(
    {
        aten.max.dim: _first(lax.argmax),
        aten.min.dim: _first(lax.argmin),
        aten.argmax: _arg(lax.argmax),
        aten.argmin: _arg(lax.argmin),
        aten.cumsum: _cumulative(lax.cumsum),
        aten.cumprod: _cumulative(lax.cumprod),
        aten._logcumsumexp: widened(along(_logcumsumexp)),
        aten.logcumsumexp: widened(along(_logcumsumexp)),
        aten.trace: lambda self: jnp.sum(jnp.diagonal(_summed(self, None))),
    }
)


def _running(function):
    @along
    def lowering(self, dim):
        """The last of equal elements wins; NaN stays."""
        axis = dim % self.ndim
        x = lax.stop_gradient(self.astype(np.int8) if self.dtype.kind == "b" else self)
        place = lax.broadcasted_iota(default_int(), x.shape, axis)
        index = lax.cummax(select((x == function(x, axis)) | (x != x), place, 0), axis)
        return jnp.take_along_axis(self, index, axis), index

    return lowering


table.update({aten.cummax: _running(lax.cummax), aten.cummin: _running(lax.cummin)})


@lowers(aten.renorm)
def renorm(self, p, dim, maxnorm):
    """Slices along ``dim`` whose norm is larger are scaled down; 1e-7 as in torch's kernel."""
    axes = [a for a in range(self.ndim) if a != dim % self.ndim]
    norm = vector_norm(wide(self), p, axes, True, None)
    return cast(self * select(norm > maxnorm, maxnorm / (norm + 1e-7), 1.0), self.dtype)


@lowers(aten.linalg__powsum)
def power_sum(self, ord, dim, keepdim, dtype):
    return jnp.sum(absolute(cast(self, dtype)) ** ord, axes_of(self, dim), keepdims=keepdim)


@lowers(aten.cov)
def cov(self, correction, fweights, aweights):
    """Rows are variables; torch's own checks of the weights need their values."""
    x = floating(self if self.ndim == 2 else lax.reshape(self, (1, self.size)))
    size = lax.abs(x[:1]).dtype
    weight = jnp.ones(x.shape[1], size)
    for weights in (fweights, aweights):
        weight = weight if weights is None else weight * weights
    total = jnp.sum(weight)
    centred = x - jnp.sum(x * weight, 1, keepdims=True) / total
    lost = correction if aweights is None else correction * jnp.sum(weight * aweights) / total
    out = (centred * weight) @ centred.conj().T / jnp.maximum(total - lost, 0)
    return lax.squeeze(out, [a for a in (0, 1) if out.shape[a] == 1])


@lowers(aten.hash_tensor)
def hash_tensor(self, dim, keepdim, mode):
    """All bits of the values, floats as float64, combined by exclusive or."""
    if not x64():
        raise Unsupported(
            "hash_tensor",
            why="the hash has 64 bits, and JAX keeps 32 unless x64 is on",
            do='call jax.config.update("jax_enable_x64", True) first',
        )
    wide = lax.convert_element_type(self, np.int64 if exact(self) else np.float64)
    bits, axes = lax.bitcast_convert_type(wide, np.uint64), axes_of(self, dim)
    out = lax.reduce(bits, np.uint64(0), lax.bitwise_xor, axes)
    return lax.expand_dims(out, axes) if keepdim else out
