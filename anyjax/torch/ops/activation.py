"""Activations: nonlinearities with torch's subgradients, softmax and its relatives."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.errors import Unsupported
from anyjax.torch.core.schema import aten, lowers, table
from anyjax.torch.ops._operands import (
    absolute,
    along,
    cast,
    floating,
    like,
    number,
    select,
    wide,
    widened,
)


def _inner(x, low, high, /):
    """Clamped; unlike in torch's clamp, the gradient at the bounds is 0, and at NaN 1."""
    low, high = like(x, low), like(x, high)
    return select(lax.le(x, low), low, select(lax.ge(x, high), high, x))


def relu(self):
    """NaN stays, the gradient at 0 is 0."""
    zero = like(self, 0)
    return select(lax.le(self, zero), zero, self)


def hardswish(x, /):
    """The gradient is 0 at -3 and 1 at 3; -inf gives NaN."""
    inner = select(absolute(x) < 3, x, like(x, 0))
    return select(x <= -3, x * 0, select(x < 3, inner * (x + 3) / 6, x))


def softplus(x):
    return lax.max(x, like(x, 0)) + lax.log1p(lax.exp(-absolute(x)))


@jax.custom_jvp
def expm1(x):
    return lax.expm1(x)


expm1.defjvps(lambda tangent, _, x: tangent * lax.exp(x))  # jax's own cancels for large -x


@widened
def elu(self, alpha, scale, input_scale):
    """The exponential never sees positive values, whose overflow would spoil the gradient."""
    below = select(self <= 0, self, like(self, 0))
    below = expm1(below if input_scale == 1 else below * input_scale) * (alpha * scale)
    return select(self <= 0, below, self if scale == 1 else self * scale)


def _outside(grad, x, bound, /):
    return select((x >= -bound) & (x <= bound), 0, grad)


def _prelu(self, weight):
    return select(self > 0, self, weight * self)


SELU = 1.6732632423543772, 1.0507009873554805, 1

table.update(
    {
        aten.relu: relu,
        aten.relu6: lambda self: _inner(self, 0, 6),
        aten.hardtanh: _inner,
        aten.hardsigmoid: widened(
            lambda self: lax.clamp(like(self, 0), self + 3, like(self, 6)) / 6
        ),
        aten.hardswish: widened(hardswish),
        aten.silu: widened(lambda self: lax.mul(self, lax.logistic(self))),
        aten.mish: widened(lambda self: self * lax.tanh(softplus(self))),
        aten.leaky_relu: widened(
            lambda self, negative_slope: select(self > 0, self, self * negative_slope)
        ),
        aten.prelu: lambda self, weight: _prelu(self, _per_channel(weight, self.ndim)),
        aten._prelu_kernel: _prelu,
        aten.elu: elu,
        aten.selu: widened(lambda self: elu(self, *SELU)),
        aten.celu: widened(lambda self, alpha: elu(self, alpha, 1, 1 / alpha)),
        aten.log_sigmoid: widened(
            lambda self: lax.min(self, like(self, 0)) - lax.log1p(lax.exp(-absolute(self)))
        ),
        aten.threshold: lambda self, threshold, value: select(
            self <= number(threshold, self.dtype), number(value, self.dtype), self
        ),
        aten.hardshrink: lambda self, lambd: select((self >= -lambd) & (self <= lambd), 0, self),
        aten.hardshrink_backward: _outside,
        aten.softshrink_backward: _outside,
        aten.glu: widened(lambda self, dim: jnp.multiply(*_gate(self, dim))),
    }
)


def _per_channel(weight, rank):
    """One weight for all, or one per index of axis 1."""
    if rank < 2:
        return weight.reshape([-1] * min(rank, weight.ndim)) if weight.size == 1 else weight
    return weight if weight.ndim == 0 else weight.reshape(-1, *[1] * (rank - 2))


def _gate(x, dim):
    first, second = jnp.split(x, 2, dim)
    return first, lax.logistic(second)


@lowers(aten.gelu)
@widened
def gelu(self, approximate):
    if approximate == "tanh":
        cubed = lax.add(self, _times(lax.integer_pow(self, 3), 0.044715))
        inner = lax.tanh(_times(cubed, math.sqrt(2 / math.pi)))
    else:
        inner = lax.erf(_times(self, math.sqrt(0.5)))
    return lax.mul(_times(self, 0.5), lax.add(inner, like(self, 1)))


def _times(x, value):
    return lax.mul(x, like(x, value))


@lowers(aten.softplus)
@widened
def softplus_(self, beta, threshold):
    """Linear from ``threshold`` on."""
    scaled = self * beta
    linear = scaled > threshold
    curve = lax.log1p(lax.exp(select(linear, like(self, 0), scaled)))
    return select(linear, self, curve if beta == 1 else curve / beta)


@lowers(aten.softshrink)
@widened
def softshrink(self, lambd):
    """NaN stays NaN."""
    inside = (self >= -lambd) & (self <= lambd)
    return select(inside, 0, select(self > lambd, self - lambd, self + lambd))


@along
def _softmax(self, dim):
    """exp(x - max) / sum, in float32 for 16-bit floats; a row of -inf gives NaN."""
    if not self.size:
        return self
    x = wide(self)
    high = lax.stop_gradient(x.max(dim, keepdims=True))
    exp = lax.exp(x - high)
    return cast(exp / exp.sum(dim, keepdims=True), self.dtype)


@along
def _log_softmax(self, dim):
    if not self.size:
        return self
    x = wide(self)
    shifted = x - lax.stop_gradient(x.max(dim, keepdims=True))
    return cast(shifted - lax.log(lax.exp(shifted).sum(dim, keepdims=True)), self.dtype)


@along
def _safe_softmax(self, dim):
    """A row of -inf gives zeros."""
    empty = jnp.all(self == -jnp.inf, dim, keepdims=True)
    return select(empty, 0, _softmax(select(empty, 0, self), dim))


def _typed(function):
    """The dtype asked for comes first; integers need one."""
    return lambda self, dim, dtype: function(
        floating(self) if dtype is None else cast(self, dtype), dim
    )


def _halves(function):
    return lambda self, dim, half_to_float: function(
        self.astype(np.float32) if half_to_float else self, dim
    )


table.update(
    {
        aten.softmax.int: _typed(_softmax),
        aten.log_softmax.int: _typed(_log_softmax),
        aten._safe_softmax: _typed(_safe_softmax),
        aten._softmax: _halves(_softmax),
        aten._log_softmax: _halves(_log_softmax),
    }
)


@lowers(aten._masked_softmax)
def masked_softmax(self, mask, dim, mask_type):
    """True is masked out; rows without any value left give zeros."""
    if mask_type not in (None, 2):
        raise Unsupported(
            f"_masked_softmax with mask_type={mask_type}",
            why="its mask has a shape of its own",
            do="give a mask of the input's shape",
        )
    return _safe_softmax(select(mask, -jnp.inf, self), -1 if dim is None else dim)
