"""Words of Philox as numbers, as TensorFlow's CPU kernels make them: flat arrays of ``count``.

Their dtype is the one that JAX has for TensorFlow's, but the words that they take are those that
TensorFlow takes: two for 64 bits, one for fewer.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from tojax.dtypes import canonical, x64
from tojax.errors import Unsupported, WrongArguments
from tojax.tensorflow.core.known import is_known
from tojax.tensorflow.ops.philox import U32, Stream, block, words

EPSILON = 1e-7  # the smallest number whose logarithm is taken
BELOW_ONE = np.float32(1 - 2**-24)
TURN = np.float32(2 * math.pi)
TURN_REST = np.float32(2 * math.pi - float(TURN))
TURN_PARTS = (np.float32(201 / 32), np.float32(float(TURN) - 201 / 32))  # 8 and 12 bits
MANTISSAS = {  # bits of the mantissa, and the bits of 1.0
    np.dtype(np.float16): (10, np.uint16(0x3C00)),
    np.dtype(ml_dtypes.bfloat16): (7, np.uint16(0x3F80)),
    np.dtype(np.float32): (23, U32(0x3F800000)),
}


def is_double(dtype) -> bool:
    """Whether numbers take two words each."""
    return np.dtype(dtype).itemsize == 8


def flat(stream: Stream, count: int):
    """``count`` words."""
    return words(stream, count).reshape(-1)[:count]


def pairs(stream: Stream, count: int):
    """``count`` pairs of words: [count, 2]."""
    return words(stream, 2 * count).reshape(-1, 2)[:count]


def fraction(word, dtype):
    """In [0, 1): the lowest bits are the mantissa of a number in [1, 2)."""
    bits, one = MANTISSAS[np.dtype(dtype)]
    mantissa = (word & U32((1 << bits) - 1)).astype(one.dtype)
    return lax.bitcast_convert_type(mantissa | one, dtype) - np.ones((), dtype)


def double_fraction(first, second):
    """In [0, 1): 20 bits of the first word, then those of the second; rounded while x64 is off."""
    high = first & U32((1 << 20) - 1)
    if not x64():
        wide = high.astype(np.float32) * 2.0**-20 + second.astype(np.float32) * 2.0**-52
        return jnp.minimum(wide, BELOW_ONE)
    bits = high.astype(np.uint64) << 32 | second.astype(np.uint64) | np.uint64(1023 << 52)
    return lax.bitcast_convert_type(bits, np.float64) - 1.0


def uniform(stream, count, dtype):
    if is_double(dtype):
        pair = pairs(stream, count)
        return double_fraction(pair[:, 0], pair[:, 1])
    return fraction(flat(stream, count), dtype)


def box_muller(first, angle):
    """Two normal numbers of a uniform one and an angle, in a new last axis."""
    size = lax.sqrt(-2 * lax.log(jnp.maximum(first, np.asarray(EPSILON, first.dtype))))
    return jnp.stack([lax.sin(angle) * size, lax.cos(angle) * size], -1)


def angle_of(word):
    """2 pi times the fraction of a word, rounded once: TensorFlow multiplies in doubles.

    The fraction and 2 pi are split into halves whose products float32 holds exactly.
    """
    u, upper = fraction(word, np.float32), fraction(word & U32(0x7FF800), np.float32)
    rough, lower = u * TURN, u - upper
    rest = (upper * TURN_PARTS[0] - rough) + lower * TURN_PARTS[0] + upper * TURN_PARTS[1]
    return rough + (rest + lower * TURN_PARTS[1] + u * TURN_REST)


def normals_of(four, dtype):
    """[..., 4] words as normal numbers: [..., 4], of doubles [..., 2]; 16 bits as float32."""
    if is_double(dtype):
        u = double_fraction(four[..., ::2], four[..., 1::2])
        return box_muller(u[..., 0], u.dtype.type(2 * math.pi) * u[..., 1])
    return box_muller(fraction(four[..., ::2], np.float32), angle_of(four[..., 1::2])).reshape(
        four.shape
    )


def normal(stream, count, dtype):
    four = words(stream, count * (2 if is_double(dtype) else 1))
    return normals_of(four, dtype).reshape(-1)[:count].astype(canonical(dtype))


def truncated_normal(stream, count, dtype):
    """Numbers beyond 2 are drawn again: every group of 4 (doubles: 2) has 256 words for each."""
    size = 2 if is_double(dtype) else 4
    groups = lax.iota(U32, -(-count // size))
    reserved = U32(256 * size // 4)
    low, high = groups * reserved, groups >> U32(32 - int(reserved).bit_length() + 1)
    kind = normals_of(jnp.zeros((0, 4), U32), dtype).dtype

    def step(state):
        tries, filled, out = state
        found = normals_of(block(stream, low + tries, high), dtype)
        good = abs(found) < 2
        place = filled[:, None] + jnp.cumsum(good, 1, dtype=np.int32) - 1
        put = good[..., None] & (place[..., None] == np.arange(size, dtype=np.int32))
        out = out + jnp.sum(jnp.where(put, found[..., None], 0), 1)
        return tries + U32(1), filled + jnp.sum(good, 1, dtype=np.int32), out

    start = (
        jnp.zeros((), U32),
        jnp.zeros(groups.shape, np.int32),
        jnp.zeros((*groups.shape, size), kind),
    )
    out = lax.while_loop(lambda state: jnp.any(state[1] < size), step, start)[2]
    return out.reshape(-1)[:count].astype(canonical(dtype))


def full_int(stream, count, dtype):
    """All values of an integer type."""
    if not is_double(dtype):
        return lax.bitcast_convert_type(flat(stream, count), dtype)
    if not x64():
        raise Unsupported(
            f"random integers over all of {np.dtype(dtype)}",
            why="JAX keeps 32-bit integers unless x64 is on",
            do='call jax.config.update("jax_enable_x64", True) first',
        )
    return lax.bitcast_convert_type(pairs(stream, count), dtype)


def uniform_int(stream, count, dtype, low, high):
    """In [low, high): the remainder of a word, of two words for 64 bits."""
    if is_known(low) and is_known(high) and not int(low) < int(high):
        raise WrongArguments(f"no integer is in [{low}, {high})", do="give minval below maxval")
    narrow = canonical(dtype)
    unsigned = np.dtype(f"u{narrow.name.removeprefix('u')}")
    low, span = as_narrow(low, narrow), as_narrow(high, narrow)
    span = span.astype(unsigned) - low.astype(unsigned)
    if not is_double(dtype):
        rest = lax.rem(*jnp.broadcast_arrays(flat(stream, count), span))
    elif x64():
        rest = lax.bitcast_convert_type(pairs(stream, count), unsigned) % span
    else:
        rest = long_remainder(pairs(stream, count), span)
    return (low.astype(unsigned) + rest).astype(narrow)


def as_narrow(bound, dtype):
    """A bound as JAX has it; an excluded one may be one above the largest integer."""
    if not is_known(bound):
        return bound.astype(dtype)
    limits = np.iinfo(dtype)
    if limits.min <= int(bound) <= limits.max + 1:
        return jnp.asarray(np.asarray(bound).astype(dtype))
    raise Unsupported(
        f"a random integer's bound of {int(bound)}",
        why="JAX keeps 32-bit integers unless x64 is on",
        do='call jax.config.update("jax_enable_x64", True) first',
    )


def long_remainder(pair, span):
    """64 bits modulo 32, bit by bit: pair [n, 2], the lower word first."""

    def step(k, rest):
        bit = pair[:, 0] >> (U32(31) - k.astype(U32)) & U32(1)
        twice = rest << U32(1) | bit
        return jnp.where((rest >> U32(31) == 1) | (twice >= span), twice - span, twice)

    return lax.fori_loop(0, 32, step, pair[:, 1] % span)
