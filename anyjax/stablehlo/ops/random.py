"""Random bits."""

from __future__ import annotations

from jax import lax

from anyjax.errors import Unsupported
from anyjax.stablehlo.core.schema import lowers

ALGORITHMS = {
    "DEFAULT": lax.RandomAlgorithm.RNG_DEFAULT,
    "THREE_FRY": lax.RandomAlgorithm.RNG_THREE_FRY,
    "PHILOX": lax.RandomAlgorithm.RNG_PHILOX,
}


@lowers("stablehlo.rng_bit_generator")
def rng_bit_generator(results, output, algorithm, state, /):
    if results[0].dtype != results[0].wide and state.ndim == 1:
        raise narrowed("a state")
    return generate_bits(results[1], algorithm, state)


def generate_bits(bits, algorithm, state):
    """Returns the next state and the bits; without x64 the state is pairs of 32-bit integers."""
    if bits.dtype != bits.wide:
        raise narrowed("bits")
    flat = state.reshape(-1) if state.dtype.itemsize == 4 else state
    new_state, drawn = lax.rng_bit_generator(flat, bits.shape, bits.dtype, ALGORITHMS[algorithm])
    return new_state.reshape(state.shape), drawn


def narrowed(what: str) -> Unsupported:
    """Returns the error for 64-bit integers that JAX would narrow."""
    return Unsupported(
        f"rng_bit_generator with {what} of 64-bit integers",
        why="JAX keeps 32-bit integers unless x64 is on, and the bits would be others",
        do='call jax.config.update("jax_enable_x64", True) first',
    )


@lowers("stablehlo.rng")
def rng(a, b, shape, distribution, /):
    raise Unsupported(
        f"stablehlo.rng ({distribution})",
        why="it draws from the device's own state, and JAX has none",
        do="export the model with numbers drawn from a key, or pass them as an argument",
    )
