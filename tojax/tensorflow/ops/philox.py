"""Philox4x32-10, the counter-based generator behind TensorFlow's stateless random numbers.

J. Salmon and others, "Parallel random numbers: as easy as 1, 2, 3" (2011). A key of 64 bits and a
counter of 128 give four words of 32 bits; the next four come from the counter plus 1. All of it is
arithmetic of 32 bits, whether x64 is on or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tojax.tensorflow.core.known import is_known

U32 = np.uint32
MULTIPLIERS = (U32(0xD2511F53), U32(0xCD9E8D57))
STEPS = (U32(0x9E3779B9), U32(0xBB67AE85))
SCRAMBLING_KEY = np.array([0x3EC8F720, 0x02461E29], U32)  # what turns TensorFlow's seeds into keys


class Stream(NamedTuple):
    """Where a sequence of words begins: two words of key, four of counter, the lowest first."""

    key: Any
    counter: Any


@dataclass(frozen=True, eq=False)
class Words:
    """Traced integers of 64 bits, each as its lower and its upper half."""

    halves: jax.Array


def halves(value) -> Any:
    """Integers of 64 bits as words; a narrower one is extended by its sign."""
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
    """The key and the counter, as 64-bit integers, that TensorFlow makes of a seed of two."""
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
    """The first ``count`` words, the last axis of four complete: [ceil(count / 4), 4]."""
    index = lax.iota(U32, -(-count // 4))
    return block(stream, index)


def block(stream: Stream, low, high=None) -> jax.Array:
    """The four words that the counter plus an offset gives, for every offset: [..., 4]."""
    return _block(stream.key, stream.counter, (low, jnp.zeros_like(low) if high is None else high))


@jax.jit
def _block(key, counter, offset):
    c = _plus(counter, offset)
    k = [key[0], key[1]]
    for _ in range(10):
        (high0, low0), (high1, low1) = (_product(m, x) for m, x in zip(MULTIPLIERS, c[::2]))
        c = [high1 ^ c[1] ^ k[0], low1, high0 ^ c[3] ^ k[1], low0]
        k = [word + step for word, step in zip(k, STEPS)]
    return jnp.stack(c, -1)


def _plus(counter, offset):
    """A number of 128 bits plus one of 64."""
    out, carry = [], jnp.zeros((), U32)
    for i in range(4):
        more = offset[i] if i < 2 else jnp.zeros_like(offset[0])
        part = counter[i] + more
        total = part + carry
        carry = ((part < more) | (total < part)).astype(U32)
        out.append(total)
    return out


def _product(a, b):
    """The upper and the lower word of a product."""
    a0, a1, b0, b1 = a & U32(0xFFFF), a >> U32(16), b & U32(0xFFFF), b >> U32(16)
    middle = a1 * b0 + (a0 * b0 >> U32(16))
    other = a0 * b1 + (middle & U32(0xFFFF))
    return a1 * b1 + (middle >> U32(16)) + (other >> U32(16)), a * b
