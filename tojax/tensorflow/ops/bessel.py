"""Bessel functions with TensorFlow's derivatives, which hold at 0 as well."""

from __future__ import annotations

import jax.numpy as jnp
import jax.scipy.special as jsp
from jax import lax

from tojax.bessel import bessel_j, bessel_k, bessel_y
from tojax.tensorflow.core.schema import table
from tojax.tensorflow.ops._derivative import partials
from tojax.tensorflow.ops.special import wide


def _through(out, x, at_0):
    """out / x, and its limit at 0."""
    return jnp.where(x == 0, at_0, out / jnp.where(x == 0, 1, x))


def below_0(at, function):
    """What TensorFlow has for negative arguments, where the function is not defined."""
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

table.update({name: wide(partials(rule)(of)) for name, (of, rule) in FUNCTIONS.items()})
