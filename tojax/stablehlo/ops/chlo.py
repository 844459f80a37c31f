"""The functions of the CHLO dialect, as operations or as composites with a decomposition."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from tojax.stablehlo.core.schema import table

table.update(
    {
        "chlo.acos": lax.acos,
        "chlo.acosh": lax.acosh,
        "chlo.asin": lax.asin,
        "chlo.asinh": lax.asinh,
        "chlo.atan": lax.atan,
        "chlo.atanh": lax.atanh,
        "chlo.bessel_i1e": lax.bessel_i1e,
        "chlo.conj": lax.conj,
        "chlo.cosh": lax.cosh,
        "chlo.digamma": lax.digamma,
        "chlo.erf": lax.erf,
        "chlo.erf_inv": lax.erf_inv,
        "chlo.erfc": lax.erfc,
        "chlo.is_inf": jnp.isinf,
        "chlo.is_neg_inf": jnp.isneginf,
        "chlo.is_pos_inf": jnp.isposinf,
        "chlo.lgamma": lax.lgamma,
        "chlo.next_after": lax.nextafter,
        "chlo.polygamma": lax.polygamma,
        "chlo.sinh": lax.sinh,
        "chlo.square": lax.square,
        "chlo.tan": lax.tan,
        "chlo.top_k": lambda operand, k, /: lax.top_k(operand, k),
        "chlo.zeta": lax.zeta,
    }
)
