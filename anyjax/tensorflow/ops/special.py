"""Special functions: error, gamma, beta, zeta and Bessel functions and their like."""

from __future__ import annotations

import jax.numpy as jnp
import jax.scipy.special as jsp
import numpy as np
from jax import lax

from anyjax.numerics.bessel import bessel_j, bessel_k, bessel_y
from anyjax.private_names import optional
from anyjax.tensorflow.core.schema import table
from anyjax.tensorflow.ops.pointwise import partials

still = lax.stop_gradient  # where TensorFlow has no gradient


def wide(function):
    """Makes a lowering that computes 16-bit floats in float32."""

    def lowering(x, /):
        out = function(x.astype(np.float32) if x.dtype.itemsize == 2 else x)
        return out.astype(x.dtype)

    return lowering


@partials(lambda out, _: np.sqrt(2 * np.pi).astype(out.dtype) * lax.exp(lax.square(out) / 2))
def ndtri(x):
    """Has an infinite derivative at 0 and 1, where JAX has 0."""
    return jsp.ndtri(x)


@partials(None, lambda out, x, q: -x * zeta(x + 1, q))
def zeta(x, q):
    return lax.zeta(*jnp.broadcast_arrays(x, q))


@partials(lambda _, x: polygamma(jnp.ones_like(x), x))
def digamma(x):
    """Is NaN at 0."""
    return jnp.where(x == 0, jnp.nan, lax.digamma(x))


@partials(None, lambda out, a, x: polygamma(a + 1, x))
def polygamma(a, x):
    sign = jnp.where(a % 2 == 0, -1, 1).astype(x.dtype)
    derivative = sign * lax.exp(lax.lgamma(a + 1)) * zeta(a + 1, x)
    derivative = jnp.where(a == lax.floor(a), derivative, jnp.nan)
    return jnp.where(a == 0, digamma(x), derivative)


def betainc(a, b, x):
    """Has a gradient by x alone."""
    return lax.betainc(*jnp.broadcast_arrays(still(a), still(b), x))


@partials(lambda _, x: jnp.where(x == 1, -1, lax.log(x) / jnp.where(x == 1, 1, 1 - x)))
def spence(x):
    return jsp.spence(x)


table.update(
    {
        "Betainc": betainc,
        "Dawsn": wide(optional("jax.scipy.special:dawsn", "Dawsn, which JAX has since 0.10.2")),
        "Digamma": wide(digamma),
        "Erf": lax.erf,
        "Erfc": lax.erfc,
        "Erfinv": lax.erf_inv,
        "Expint": wide(partials(lambda _, x: lax.exp(x) / x)(jsp.expi)),
        "FresnelCos": wide(lambda x: jsp.fresnel(x)[1]),
        "FresnelSin": wide(lambda x: jsp.fresnel(x)[0]),
        "Igamma": lambda a, x: lax.igamma(*jnp.broadcast_arrays(a, x)),
        "IgammaGradA": lambda a, x: lax.igamma_grad_a(*jnp.broadcast_arrays(a, x)),
        "Igammac": lambda a, x: lax.igammac(*jnp.broadcast_arrays(a, x)),
        "Lgamma": wide(lax.lgamma),
        "Ndtri": wide(ndtri),
        "Polygamma": polygamma,
        "RandomGammaGrad": lambda alpha, sample: lax.random_gamma_grad(
            *jnp.broadcast_arrays(alpha, sample)
        ),
        "Spence": wide(spence),
        "Zeta": zeta,
    }
)


# Bessel functions with TensorFlow's derivatives, which hold at 0 as well.


def _through(out, x, at_0):
    """Returns out / x, and its limit at 0."""
    return jnp.where(x == 0, at_0, out / jnp.where(x == 0, 1, x))


def below_0(at, function):
    """Makes the function ``at`` for negative arguments, where it is not defined."""
    return lambda x: jnp.where(x < 0, at, function(x))


i0, i1, i1e, j0, j1 = jsp.i0, jsp.i1, jsp.i1e, bessel_j(0), bessel_j(1)
k0, k1, k0e, k1e = (below_0(jnp.inf, bessel_k(n, e)) for e in (False, True) for n in (0, 1))
y0, y1 = (below_0(-jnp.inf, bessel_y(n)) for n in (0, 1))

FUNCTIONS = {  # the function and its derivative, of the result and the argument
    "BesselI0": (i0, lambda out, x: i1(x)),
    "BesselI0e": (jsp.i0e, lambda out, x: i1e(x) - lax.sign(x) * out),
    "BesselI1": (i1, lambda out, x: i0(x) - _through(out, x, 0)),
    "BesselI1e": (
        i1e,
        lambda out, x: jnp.where(x == 0, 0.5, jsp.i0e(x) - lax.sign(x) * out - _through(out, x, 0)),
    ),
    "BesselJ0": (j0, lambda out, x: -j1(x)),
    "BesselJ1": (j1, lambda out, x: j0(x) - _through(out, x, 0.5)),
    "BesselK0": (k0, lambda out, x: -k1(x)),
    "BesselK0e": (k0e, lambda out, x: out - k1e(x)),
    "BesselK1": (k1, lambda out, x: -k0(x) - out / x),
    "BesselK1e": (k1e, lambda out, x: out * (1 - 1 / x) - k0e(x)),
    "BesselY0": (y0, lambda out, x: -y1(x)),
    "BesselY1": (y1, lambda out, x: y0(x) - out / x),
}

table.update({name: wide(partials(rule)(bessel)) for name, (bessel, rule) in FUNCTIONS.items()})
