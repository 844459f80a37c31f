"""Special functions: error, gamma, beta, zeta and Bessel functions and their like."""

from __future__ import annotations

import jax.numpy as jnp
import jax.scipy.special as jsp
import numpy as np
from jax import lax

from tojax.private_names import optional
from tojax.tensorflow.core.schema import table
from tojax.tensorflow.ops._derivative import partials

still = lax.stop_gradient  # where TensorFlow has no gradient


def wide(function):
    """16-bit floats are computed in float32."""

    def lowering(x, /):
        out = function(x.astype(np.float32) if x.dtype.itemsize == 2 else x)
        return out.astype(x.dtype)

    return lowering


@partials(lambda out, _: np.sqrt(2 * np.pi).astype(out.dtype) * lax.exp(lax.square(out) / 2))
def ndtri(x):
    """The derivative at 0 and 1 is infinite, where JAX has 0."""
    return jsp.ndtri(x)


@partials(None, lambda out, x, q: -x * zeta(x + 1, q))
def zeta(x, q):
    return lax.zeta(*jnp.broadcast_arrays(x, q))


@partials(lambda _, x: polygamma(jnp.ones_like(x), x))
def digamma(x):
    """NaN at 0."""
    return jnp.where(x == 0, jnp.nan, lax.digamma(x))


@partials(None, lambda out, a, x: polygamma(a + 1, x))
def polygamma(a, x):
    sign = jnp.where(a % 2 == 0, -1, 1).astype(x.dtype)
    rest = sign * lax.exp(lax.lgamma(a + 1)) * zeta(a + 1, x)
    whole = jnp.where(a == lax.floor(a), rest, jnp.nan)
    return jnp.where(a == 0, digamma(x), whole)


def betainc(a, b, x):
    """The gradient is that by x."""
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
