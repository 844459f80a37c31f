"""Bytes as numbers: in columns of a matrix, one or two of a column in a byte."""

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
    """How numbers are stored.

    Attributes:
      dtype: of what is stored; two of 4 bits share a byte, the first one in the low bits.
      block: how many share a scale if nothing is said; None for those of a row.
      bits: of a number.
      codes: the sixteen numbers that 4 bits stand for, where they are no integers.
      rounds: what qwix calls the rounding; None where numbers come from checkpoints alone.
      zero: whether a block has a number that stands for zero, too.
    """

    dtype: Any
    block: int | None
    bits: int = 8
    codes: tuple[float, ...] = ()
    rounds: Any = None
    zero: bool = False

    @property
    def per(self) -> int:
        """Numbers in a byte."""
        return 8 // self.bits

    def numbers(self, stored: jax.Array) -> tuple[jax.Array, ...]:
        """The float32 numbers that share a byte, in their order; before zero and scale.

        Written for XLA:CPU, which makes vector code of shifts and selects of 32 bits, and one
        number after the other of everything that has a narrower name (int4, float8, gathers).
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
        left: list[Any] = [jnp.float32(x) for x in self.codes]
        for bit in (8, 4, 2, 1):
            on = (code & bit) != 0
            left = [jnp.where(on, left[i + bit], left[i]) for i in range(bit)]
        return left[0]


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
    """uint8 [n / 2, columns]: two numbers of 4 bits of a column in a byte."""
    low, high = (codes[i::2].astype(jnp.uint8) & 15 for i in (0, 1))
    return low | (high << 4)
