"""Philox4x32-10, the generator of TensorFlow's stateless random numbers, and numbers of its words.

J. Salmon and others, "Parallel random numbers: as easy as 1, 2, 3" (2011). A key of 64 bits and a
counter of 128 give four words of 32 bits; the next four come from the counter plus 1. All of it is
arithmetic of 32 bits, whether x64 is on or not. Words become numbers as in TensorFlow's CPU
kernels, in flat arrays of ``count``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from anyjax.dtypes import canonical, x64
from anyjax.errors import Unsupported, WrongArguments
from anyjax.stablehlo.core.static_values import is_known

U32 = np.uint32
MULTIPLIERS = (U32(0xD2511F53), U32(0xCD9E8D57))
STEPS = np.array([0x9E3779B9, 0xBB67AE85], U32)
SCRAMBLING_KEY = np.array([0x3EC8F720, 0x02461E29], U32)  # turns TensorFlow's seeds into keys

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


class Stream(NamedTuple):
    """The start of a sequence of words: two words of key, four of counter, the lowest first."""

    key: Any
    counter: Any


@dataclass(frozen=True, eq=False)
class Words:
    """Traced integers of 64 bits, each as its lower and its upper half."""

    halves: jax.Array


def halves(value) -> Any:
    """Splits integers of 64 bits into words; a narrower one is extended by its sign."""
    if isinstance(value, Words):
        return value.halves
    if is_known(value):
        wide = np.asarray(value)
        return wide.astype(np.int64 if wide.dtype.kind == "i" else np.uint64)[..., None].view(U32)
    if value.dtype.itemsize == 8:
        return lax.bitcast_convert_type(value, U32)
    upper = value >> 31 if value.dtype.kind == "i" else jnp.zeros_like(value)
    return jnp.stack([value.astype(U32), upper.astype(U32)], -1)


def seeded(seed) -> tuple[Any, Any]:
    """Returns TensorFlow's key and counter for a seed of two, as 64-bit integers."""
    counter = halves(seed).reshape(4)
    if not is_known(seed):
        mixed = _block(SCRAMBLING_KEY, counter, (jnp.zeros((), U32),) * 2)
        zero = jnp.zeros((1, 2), U32)
        return Words(mixed[None, :2]), Words(jnp.concatenate([zero, mixed[None, 2:]]))
    with jax.ensure_compile_time_eval():
        mixed = np.asarray(_block(SCRAMBLING_KEY, counter, (np.zeros((), U32),) * 2))
    return mixed[:2].view(np.uint64), np.concatenate([[0, 0], mixed[2:]]).astype(U32).view(
        np.uint64
    )


def words(stream: Stream, count: int) -> jax.Array:
    """Returns the first ``count`` words, rounded up to whole blocks: [ceil(count / 4), 4]."""
    index = lax.iota(U32, -(-count // 4))
    return block(stream, index)


def block(stream: Stream, low, high=None) -> jax.Array:
    """Returns the four words of the counter plus an offset, for every offset: [..., 4]."""
    return _block(stream.key, stream.counter, (low, jnp.zeros_like(low) if high is None else high))


@jax.jit
def _block(key, counter, offset):
    """Runs ten rounds as a loop of five, which XLA compiles and runs faster than one expression."""

    def two_rounds(_, state):
        for _ in range(2):
            state = _round(*state)
        return state

    start = plus(counter, offset), jnp.asarray(key)
    return jnp.stack(lax.fori_loop(0, 5, two_rounds, start)[0], -1)


def _round(c, key):
    (high0, low0), (high1, low1) = (_product(m, x) for m, x in zip(MULTIPLIERS, c[::2]))
    return [high1 ^ c[1] ^ key[0], low1, high0 ^ c[3] ^ key[1], low0], key + STEPS


def plus(counter, offset):
    """Adds a number of 64 bits to one of 128."""
    out, carry = [], jnp.zeros((), U32)
    for i in range(4):
        addend = offset[i] if i < 2 else jnp.zeros_like(offset[0])
        partial = counter[i] + addend
        total = partial + carry
        carry = ((partial < addend) | (total < partial)).astype(U32)
        out.append(total)
    return out


def _product(a, b):
    """Returns the upper and the lower word of a product."""
    a0, a1, b0, b1 = a & U32(0xFFFF), a >> U32(16), b & U32(0xFFFF), b >> U32(16)
    middle = a1 * b0 + (a0 * b0 >> U32(16))
    cross = a0 * b1 + (middle & U32(0xFFFF))
    return a1 * b1 + (middle >> U32(16)) + (cross >> U32(16)), a * b


# Words as numbers.


def is_double(dtype) -> bool:
    """Returns whether numbers take two words each."""
    return np.dtype(dtype).itemsize == 8


def flat(stream: Stream, count: int):
    """Returns ``count`` words."""
    return words(stream, count).reshape(-1)[:count]


def pairs(stream: Stream, count: int):
    """Returns ``count`` pairs of words: [count, 2]."""
    return words(stream, 2 * count).reshape(-1, 2)[:count]


def fraction(word, dtype):
    """Returns numbers in [0, 1): the lowest bits are the mantissa of a number in [1, 2)."""
    bits, bits_of_1 = MANTISSAS[np.dtype(dtype)]
    mantissa = (word & U32((1 << bits) - 1)).astype(bits_of_1.dtype)
    return lax.bitcast_convert_type(mantissa | bits_of_1, dtype) - np.ones((), dtype)


def double_fraction(first, second):
    """Returns numbers in [0, 1): 20 bits of the first word, then the second; rounded if not x64."""
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
    """Returns two normal numbers for a uniform one and an angle, in a new last axis."""
    size = lax.sqrt(-2 * lax.log(jnp.maximum(first, np.asarray(EPSILON, first.dtype))))
    return jnp.stack([lax.sin(angle) * size, lax.cos(angle) * size], -1)


def angle_of(word):
    """Returns 2 pi times the fraction of a word, rounded once: TensorFlow multiplies in doubles.

    The fraction and 2 pi are split into halves whose products float32 holds exactly.
    """
    u, upper = fraction(word, np.float32), fraction(word & U32(0x7FF800), np.float32)
    rough, lower = u * TURN, u - upper
    correction = (upper * TURN_PARTS[0] - rough) + lower * TURN_PARTS[0] + upper * TURN_PARTS[1]
    return rough + (correction + lower * TURN_PARTS[1] + u * TURN_REST)


def normals_of(four, dtype):
    """Turns words [..., 4] into normal numbers [..., 4], doubles [..., 2]; 16 bits as float32."""
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
    """Draws numbers beyond 2 again: every group of 4 (doubles: 2) has 256 words for each."""
    size = 2 if is_double(dtype) else 4
    groups = lax.iota(U32, -(-count // size))
    low, high = groups * U32(64 * size), groups >> U32(24 if size == 4 else 25)
    kind = normals_of(jnp.zeros((0, 4), U32), dtype).dtype

    def step(state):
        tries, filled, out = state
        candidates = normals_of(block(stream, low + tries, high), dtype)
        accepted = abs(candidates) < 2
        place = filled[:, None] + jnp.cumsum(accepted, 1, dtype=np.int32) - 1
        put = accepted[..., None] & (place[..., None] == np.arange(size, dtype=np.int32))
        out = out + jnp.sum(jnp.where(put, candidates[..., None], 0), 1)
        return tries + U32(1), filled + jnp.sum(accepted, 1, dtype=np.int32), out

    start = (
        jnp.zeros((), U32),
        jnp.zeros(groups.shape, np.int32),
        jnp.zeros((*groups.shape, size), kind),
    )
    out = lax.while_loop(lambda state: jnp.any(state[1] < size), step, start)[2]
    return out.reshape(-1)[:count].astype(canonical(dtype))


def full_int(stream, count, dtype):
    """Draws from all values of an integer type."""
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
    """Draws from [low, high): the remainder of a word, for 64 bits of two words."""
    if is_known(low) and is_known(high) and not int(low) < int(high):
        raise WrongArguments(f"no integer is in [{low}, {high})", do="give minval below maxval")
    narrow = canonical(dtype)
    unsigned = np.dtype(f"u{narrow.name.removeprefix('u')}")
    low, span = as_narrow(low, narrow), as_narrow(high, narrow)
    span = span.astype(unsigned) - low.astype(unsigned)
    if not is_double(dtype):
        remainder = lax.rem(*jnp.broadcast_arrays(flat(stream, count), span))
    elif x64():
        remainder = lax.bitcast_convert_type(pairs(stream, count), unsigned) % span
    else:
        remainder = long_remainder(pairs(stream, count), span)
    return (low.astype(unsigned) + remainder).astype(narrow)


def as_narrow(bound, dtype):
    """Converts a bound to JAX's dtype; an exclusive one may be one above the largest integer."""
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
    """Returns 64 bits modulo 32, bit by bit: pair [n, 2], the lower word first."""

    def step(k, remainder):
        bit = pair[:, 0] >> (U32(31) - k.astype(U32)) & U32(1)
        twice = remainder << U32(1) | bit
        return jnp.where((remainder >> U32(31) == 1) | (twice >= span), twice - span, twice)

    return lax.fori_loop(0, 32, step, pair[:, 1] % span)
