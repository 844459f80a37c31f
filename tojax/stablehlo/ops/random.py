"""Random bits."""

from __future__ import annotations

from jax import lax

from tojax.errors import Unsupported
from tojax.stablehlo.core.schema import lowers

ALGORITHMS = {
    "DEFAULT": lax.RandomAlgorithm.RNG_DEFAULT,
    "THREE_FRY": lax.RandomAlgorithm.RNG_THREE_FRY,
    "PHILOX": lax.RandomAlgorithm.RNG_PHILOX,
}


@lowers("stablehlo.rng_bit_generator")
def rng_bit_generator(results, output, algorithm, state, /):
    wide, bits = results
    if wide.dtype != wide.wide or bits.dtype != bits.wide:
        raise Unsupported(
            "rng_bit_generator of 64-bit integers",
            why="JAX keeps 32-bit integers unless x64 is on, and the bits would be others",
            do='call jax.config.update("jax_enable_x64", True) first',
        )
    return lax.rng_bit_generator(state, bits.shape, bits.dtype, ALGORITHMS[algorithm])
