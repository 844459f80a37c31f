"""Number formats of quantized columns: 8 bits, or two numbers of 4 bits in a byte."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

# The quantiles of a normal distribution (arXiv:2305.14314, appendix E).
NF4 = """-1 -0.6961928009986877 -0.5250730514526367 -0.39491748809814453 -0.28444138169288635
-0.18477343022823334 -0.09105003625154495 0 0.07958029955625534 0.16093020141124725
0.24611230194568634 0.33791524171829224 0.44070982933044434 0.5626170039176941 0.7229568362236023
1"""
# bitsandbytes' floats of a sign, two bits of exponent and one of mantissa, over the largest.
FP4 = [0, 0.005208333333, 0.66666667, 1, 0.33333333, 0.5, 0.16666667, 0.25]


class Scheme(NamedTuple):
    """A storage format of numbers.

    Attributes:
      dtype: of the stored array; two numbers of 4 bits share a byte, the first in the low bits.
      block: the default for how many numbers share a scale; None for a whole row.
      bits: of a number.
      codes: the sixteen values of 4 bits, unless they are integers.
      rounds: qwix's name of the rounding; None for formats that are only loaded.
      zero: whether a block has a zero point, too.
    """

    dtype: Any
    block: int | None
    bits: int = 8
    codes: tuple[float, ...] = ()
    rounds: Any = None
    zero: bool = False

    @property
    def per(self) -> int:
        """How many numbers a byte has."""
        return 8 // self.bits

    def numbers(self, stored: jax.Array) -> tuple[jax.Array, ...]:
        """Decodes the numbers of each byte to float32, in their order, without zero and scale.

        Written for XLA:CPU, which vectorizes shifts and selects of 32 bits, but not narrow types
        (int4, float8) and gathers.
        """
        if self.rounds == "float8_e4m3fn":  # the exponent of a half is 8 less; subnormals fit
            half = (stored.astype(jnp.int8).astype(jnp.int16) << 7) & jnp.int16(-16512)
            return (lax.bitcast_convert_type(half, jnp.float16).astype(jnp.float32) * 256.0,)
        if self.bits == 8:
            return (stored.astype(jnp.float32),)
        wide = stored.astype(jnp.int32)
        if self.codes:
            return self._decoded(wide & 15), self._decoded(wide >> 4)
        if self.zero:
            return (wide & 15).astype(jnp.float32), (wide >> 4).astype(jnp.float32)
        return tuple(((wide << n) >> 28).astype(jnp.float32) for n in (28, 24))

    def _decoded(self, code: jax.Array) -> jax.Array:
        values: list[Any] = [jnp.float32(x) for x in self.codes]
        for bit in (8, 4, 2, 1):
            on = (code & bit) != 0
            values = [jnp.where(on, values[i + bit], values[i]) for i in range(bit)]
        return values[0]


SCHEMES = {
    "int8": Scheme(jnp.int8, None, rounds=jnp.int8),
    "fp8": Scheme(jnp.uint8, None, rounds="float8_e4m3fn"),
    "int4": Scheme(jnp.uint8, 64, 4, rounds=jnp.int4),
    "nf4": Scheme(jnp.uint8, 64, 4, tuple(map(float, NF4.split())), rounds="nf4"),
}
LOADED = SCHEMES | {
    "fp4": Scheme(jnp.uint8, 64, 4, (*FP4, *(-x for x in FP4))),
    "uint4": Scheme(jnp.uint8, 64, 4, zero=True),
    "uint8": Scheme(jnp.uint8, None, zero=True),
}


def pairs(codes: jax.Array) -> jax.Array:
    """Packs each two numbers of 4 bits of a column into a byte: uint8 [n / 2, columns]."""
    low, high = (codes[i::2].astype(jnp.uint8) & 15 for i in (0, 1))
    return low | (high << 4)
