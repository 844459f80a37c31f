"""Complex numbers and their parts."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tojax.tensorflow.core.schema import table


@jax.custom_jvp
def modulus(x, /):
    """The gradient at 0 is 0."""
    return lax.abs(x)


@modulus.defjvp
def _modulus_jvp(primals, tangents):
    (x,), (along,) = primals, tangents
    size = lax.abs(x)
    whole = jnp.where(size == 0, np.ones((), size.dtype), size)
    return size, (lax.real(along) * lax.real(x) + lax.imag(along) * lax.imag(x)) / whole


table.update(
    {
        "Angle": lambda input, Tout: lax.atan2(lax.imag(input), lax.real(input)),
        "Complex": lambda real, imag, Tout: lax.complex(*jnp.broadcast_arrays(real, imag)),
        "ComplexAbs": lambda x, Tout: modulus(x),
        "Conj": lambda input: jnp.conj(input),
        "Imag": lambda input, Tout: lax.imag(input),
        "Real": lambda input, Tout: lax.real(input),
    }
)
