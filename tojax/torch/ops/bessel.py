"""Bessel and Airy functions."""

from __future__ import annotations

from jax import lax

from tojax.numerics.bessel import airy_ai, bessel_j, bessel_k, bessel_y, spherical_j0
from tojax.torch.core.schema import aten, table
from tojax.torch.ops._operands import floating

FUNCTIONS = {
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


def _unary(function):
    """Without gradient, as in torch."""
    return lambda x, /: lax.stop_gradient(function(floating(x)))


for name, function in FUNCTIONS.items():
    table.update({getattr(aten, f"special_{name}"): _unary(function)})
