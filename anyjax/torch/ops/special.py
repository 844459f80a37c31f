"""Special functions: error, gamma and Bessel functions, zeta, entropies, logit, orthogonal
polynomials.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import jax.scipy.special as jsp
from jax import lax

from anyjax.numerics.bessel import airy_ai, bessel_j, bessel_k, bessel_y, spherical_j0
from anyjax.private_names import optional
from anyjax.torch.core.schema import aten, lowers, table
from anyjax.torch.ops._operands import cast, floating, floats, number, select, wide, widened

erfcx = optional("jax.scipy.special:erfcx", "erfcx, which JAX has since 0.10.1")


def _unary(function):
    """Integers become torch's default float, 16-bit floats are computed in float32."""
    return lambda self: cast(function(wide(floating(self))), floating(self).dtype)


def _binary(function):
    def lowering(self, other):
        x, y = floats(self, other)
        return cast(function(wide(x), wide(y)), x.dtype)

    return lowering


def digamma(x):
    """Below 0 by reflection, exact near the poles; -inf at 0, NaN at the other poles."""
    negative = x < 0
    unit = number(1, x.dtype)
    right = lax.digamma(select(negative, unit - x, select(x == 0, unit, x)))
    gap = select(
        negative, x - lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), number(0.5, x.dtype)
    )
    reflected = right - math.pi / lax.tan(math.pi * select(gap == 0, number(0.5, x.dtype), gap))
    out = select(negative, select(gap == 0, jnp.nan, reflected), right)
    return select(x == 0, lax.div(-unit, x), out)


@jax.custom_jvp
def hurwitz(x, q):
    """lax.zeta is good for q > 0: what a negative one misses is added term by term."""
    steps = select(q < 0, lax.ceil(-q), number(0, q.dtype))

    def step(k, total):
        k = lax.convert_element_type(k, q.dtype)
        return select(k < steps, total + lax.pow(q + k, -x), total)

    count = jnp.max(steps, initial=0).astype(jnp.int32)
    return lax.fori_loop(0, count, step, lax.full_like(q, 0)) + lax.zeta(x, q + steps)


def _hurwitz_jvp(primals, tangents):
    (x, q), (along_x, along_q) = primals, tangents
    is_zero = lambda t: isinstance(t, jax.custom_derivatives.SymbolicZero)
    out = hurwitz(x, q)
    tangent = jnp.zeros_like(out) if is_zero(along_q) else -along_q * x * hurwitz(x + 1, q)
    if not is_zero(along_x):  # no closed form; torch has none either
        tangent += along_x * jnp.nan
    return out, tangent


hurwitz.defjvp(_hurwitz_jvp, symbolic_zeros=True)


def zeta(x, q):
    """x of 1 gives inf, below 1 NaN, and above it a non-positive integer ``q`` inf."""
    x, q = jnp.broadcast_arrays(x, q)
    pole = (x > 1) & (q <= 0) & (q == lax.floor(q))
    inside = hurwitz(select(x > 1, x, number(2, x.dtype)), select(pole, number(1, q.dtype), q))
    return select(pole | (x == 1), jnp.inf, select(x < 1, jnp.nan, select(x != x, x, inside)))


def polygamma(n, x):
    if n == 0:
        return digamma(x)
    return number(math.factorial(n) * (-1.0) ** (n + 1), x.dtype) * zeta(lax.full_like(x, n + 1), x)


@jax.custom_jvp
def i0(x):
    return jsp.i0(x)


i0.defjvps(lambda tangent, _, x: tangent * jsp.i1(x))  # jax's own cancels near 0


def logarithm_times(log, start):
    """x * log(y), 0 where x is 0; NaN where y is. ``start`` is where the logarithm does."""

    @jax.custom_jvp
    def function(x, y):
        zero = (x == 0) & (y == y)
        safe = select(zero, number(1, y.dtype), y)
        return select(zero, x * number(0, y.dtype), x * log(safe))

    function.defjvps(
        lambda tangent, _, x, y: tangent * select((x == 0) & (y <= start), 0, log(y)),
        lambda tangent, _, x, y: tangent * (x / (y - start)),
    )
    return function


xlogy, xlog1py = logarithm_times(lax.log, 0), logarithm_times(lax.log1p, -1)


@jax.custom_jvp
def entr(x):
    """-x log x; -inf below 0."""
    positive = x > 0
    safe = select(positive, x, number(1, x.dtype))
    rest = select(x == 0, 0.0, select(x < 0, -jnp.inf, x))
    return select(positive, -x * lax.log(safe), rest)


entr.defjvps(lambda tangent, _, x: tangent * (-lax.log(x) - 1))


@jax.custom_jvp
def ndtri(x):
    return jsp.ndtri(x)


ndtri.defjvps(  # infinite at 0 and 1, where jax has 0
    lambda tangent, out, x: tangent * number(math.sqrt(2 * math.pi), x.dtype) * lax.exp(out**2 / 2)
)


@jax.custom_jvp
def lgamma(x):
    return lax.lgamma(x)


lgamma.defjvps(lambda tangent, _, x: tangent * digamma(x))  # jax's has no limit at 0


def log_ndtr(x):
    """By erfcx below -1, so that the tail does not underflow."""
    low = x < -1
    root = number(0.5**0.5, x.dtype)
    tail = select(low, x, number(-1, x.dtype))
    body = select(low, number(0, x.dtype), x)
    deep = lax.log(erfcx(-tail * root) / 2) - tail * tail / 2
    return select(low, deep, lax.log1p(-lax.erfc(body * root) / 2))


table.update(
    {
        aten.erf: _unary(lax.erf),
        aten.erfc: _unary(lax.erfc),
        aten.erfinv: _unary(lax.erf_inv),
        aten.special_erfcx: _unary(erfcx),
        aten.special_ndtr: _unary(jsp.ndtr),
        aten.special_ndtri: _unary(ndtri),
        aten.special_log_ndtr: _unary(log_ndtr),
        aten.special_entr: _unary(entr),
        aten.lgamma: _unary(lgamma),
        aten.digamma: _unary(digamma),
        aten.igamma: _binary(lax.igamma),
        aten.igammac: _binary(lax.igammac),
        aten.polygamma: lambda n, self: _unary(lambda x: polygamma(n, x))(self),
        aten.mvlgamma: lambda self, p: _unary(lambda x: jsp.multigammaln(x, p))(self),
        aten.special_zeta.default: _binary(zeta),
        aten.special_zeta.self_scalar: _binary(zeta),
        aten.special_zeta.other_scalar: _binary(zeta),
        aten.xlogy: _binary(xlogy),
        aten.special_xlog1py: _binary(xlog1py),
        aten.i0: _unary(i0),
        aten.special_i0e: _unary(jsp.i0e),
        aten.special_i1: _unary(jsp.i1),
        aten.special_i1e: _unary(jsp.i1e),
        aten.special_modified_bessel_i0: _unary(i0),
        aten.special_modified_bessel_i1: _unary(jsp.i1),
    }
)


@jax.custom_jvp
def log_odds(x):
    """The gradient at 0 and 1 is infinite, and none beyond."""
    return lax.log(x / (1 - x))


log_odds.defjvps(
    lambda tangent, _, x: tangent * select((x < 0) | (x > 1), jnp.nan, 1 / (x * (1 - x)))
)


@lowers(aten.logit)
@widened
def logit(self, eps):
    """With ``eps`` the argument is clamped to [eps, 1 - eps], and the gradient outside is 0."""
    x = floating(self)
    if eps is None:
        return log_odds(x)
    low, high = number(eps, x.dtype), number(1 - eps, x.dtype)
    x = select(x < low, low, select(x > high, high, x))
    return lax.log(x / (1 - x))


# p0 = 1, p1 = a x + b, then p[k+1] = (c x + d) p[k] - e p[k-1].
RECURRENCES = {
    "chebyshev_polynomial_t": (1, 0, lambda k: (2, 0, 1)),
    "chebyshev_polynomial_u": (2, 0, lambda k: (2, 0, 1)),
    "chebyshev_polynomial_v": (2, -1, lambda k: (2, 0, 1)),
    "chebyshev_polynomial_w": (2, 1, lambda k: (2, 0, 1)),
    "hermite_polynomial_h": (2, 0, lambda k: (2, 0, 2 * k)),
    "hermite_polynomial_he": (1, 0, lambda k: (1, 0, k)),
    "laguerre_polynomial_l": (-1, 1, lambda k: (-1 / (k + 1), (2 * k + 1) / (k + 1), k / (k + 1))),
    "legendre_polynomial_p": (1, 0, lambda k: ((2 * k + 1) / (k + 1), 0, k / (k + 1))),
}


def polynomial(first, constant, recurrence, shifted):
    """The ``n``-th of a family, elementwise; 0 for negative ``n``."""

    def lowering(x, n):
        x, n = floats(x, n)
        x, n = jnp.broadcast_arrays(2 * x - 1 if shifted else x, lax.stop_gradient(jnp.trunc(n)))

        def step(k, pair):
            previous, current = pair
            c, d, e = recurrence(lax.convert_element_type(k, x.dtype))
            return current, select(k < n, (c * x + d) * current - e * previous, current)

        start = jnp.ones_like(x), select(n < 1, number(1, x.dtype), first * x + constant)
        degree = lax.max(jnp.max(n, initial=0), number(1, n.dtype)).astype(jnp.int32)
        return select(n < 0, 0.0, lax.fori_loop(1, degree, step, start)[1])

    return lowering


for name, rule in RECURRENCES.items():
    table.update({getattr(aten, f"special_{name}"): polynomial(*rule, shifted=False)})
    if name.startswith("chebyshev"):
        table.update({getattr(aten, f"special_shifted_{name}"): polynomial(*rule, shifted=True)})


BESSEL = {
    "airy_ai": airy_ai,
    "bessel_j0": bessel_j(0),
    "bessel_j1": bessel_j(1),
    "bessel_y0": bessel_y(0),
    "bessel_y1": bessel_y(1),
    "modified_bessel_k0": bessel_k(0, False),
    "modified_bessel_k1": bessel_k(1, False),
    "scaled_modified_bessel_k0": bessel_k(0, True),
    "scaled_modified_bessel_k1": bessel_k(1, True),
    "spherical_bessel_j0": spherical_j0,
}


def _without_gradient(function):
    """Makes a lowering without gradient, as in torch."""
    return lambda x, /: lax.stop_gradient(function(floating(x)))


for _name, _function in BESSEL.items():
    table.update({getattr(aten, f"special_{_name}"): _without_gradient(_function)})
