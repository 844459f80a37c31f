"""Direction and angle of complex numbers, and sums of their exponentials."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax

from anyjax.torch.core.schema import aten, lowers, table
from anyjax.torch.ops._operands import floating, number, select


@jax.custom_jvp
def unit(z):
    """z / |z|, 0 at 0, and so is its gradient there; ``lax.sign`` has none."""
    return lax.sign(z)


@unit.defjvp
def unit_jvp(primals, tangents):
    """The component of the tangent across z, divided by |z|."""
    (z,), (tangent,) = primals, tangents
    out, size = unit(z), lax.abs(z)
    across = tangent - out * lax.real(lax.conj(out) * tangent)
    return out, across * select(size == 0, 0, 1 / size)


@lowers(aten.sgn)
def sgn(self):
    return unit(self) if self.dtype.kind == "c" else sign(self)


@lowers(aten.sign)
def sign(self):
    """NaN has the sign 0 in torch."""
    return self if self.dtype.kind == "b" else lax.sign(select(self != self, 0, self))


@lowers(aten.angle)
def angle(self):
    """A real -0.0 has the angle 0; the gradient at a complex 0 is 0."""
    if self.dtype.kind == "c":
        real, imag = lax.real(self), lax.imag(self)
        zero = (real == 0) & (imag == 0)
        slope = lax.atan2(imag, select(zero, number(1, real.dtype), real))
        return select(zero, lax.stop_gradient(lax.atan2(imag, real)), slope)
    x = lax.stop_gradient(floating(self))
    return select(x != x, x, select(x < 0, number(math.pi, x.dtype), number(0, x.dtype)))


def log_of_sum(function, unit):
    """jnp's ``function``; at infinity the larger one has the gradient, equal ones share it."""
    added = jax.custom_jvp(lambda x, y: function(x, y))

    @added.defjvp
    def jvp(primals, tangents):
        (x, y), (dx, dy) = primals, tangents
        gap = select((x == y) & jnp.isinf(x), 0, x - y) * number(unit, x.dtype)
        return added(x, y), dx * lax.logistic(gap) + dy * lax.logistic(-gap)

    return added


natural, binary = log_of_sum(jnp.logaddexp, 1.0), log_of_sum(jnp.logaddexp2, math.log(2))


def logaddexp(x, y):
    """Complex: the larger real part leads and keeps its imaginary part, which jnp would wrap."""
    if x.dtype.kind != "c":
        return natural(x, y)
    swap = (lax.real(x) < lax.real(y)) | (lax.real(y) != lax.real(y))
    high, low = select(swap, y, x), select(swap, x, y)
    equal = (high == low) & ~jnp.isfinite(lax.real(high))
    difference = select(equal, 0, low - high)
    return high + lax.log1p(lax.exp(difference))


table.update({aten.isreal: jnp.isreal})
