"""Linear algebra and Fourier transforms that StableHLO has operations for."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from tojax.stablehlo.core.schema import lowers


@lowers("stablehlo.cholesky")
def cholesky(a, lower):
    factor = lax.linalg.cholesky(a if lower else jnp.conj(jnp.swapaxes(a, -1, -2)))
    return factor if lower else jnp.conj(jnp.swapaxes(factor, -1, -2))


@lowers("stablehlo.triangular_solve")
def triangular_solve(a, b, left_side, lower, unit_diagonal, transpose_a):
    return lax.linalg.triangular_solve(
        a,
        b,
        left_side=left_side,
        lower=lower,
        transpose_a=transpose_a in ("TRANSPOSE", "ADJOINT"),
        conjugate_a=transpose_a == "ADJOINT",
        unit_diagonal=unit_diagonal,
    )


@lowers("stablehlo.fft")
def fft(operand, fft_type, fft_length):
    return lax.fft(operand, fft_type, tuple(fft_length))
