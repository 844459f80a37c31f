"""Stateless gamma and Poisson numbers, by rejection: drawn until one is accepted.

Every output has 256 counters of its own, and takes uniform and normal doubles from them in pairs,
the second first, as TensorFlow's CPU kernels do. While x64 is off they are float32: a comparison
of two nearly equal numbers may then turn out the other way.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.stablehlo.core.static_values import as_jax
from anyjax.tensorflow.core.running import handles
from anyjax.tensorflow.ops.philox import U32, Stream, block, double_fraction, normals_of
from anyjax.tensorflow.ops.pointwise import partials
from anyjax.tensorflow.ops.stateless import stream_inputs

RESERVED = 256


class Supply(NamedTuple):
    """Positions of all outputs in their words: the next block, the unused number of a pair."""

    low: Any
    high: Any
    spare: Any
    has_spare: Any


def supplies(index) -> Supply:
    """Returns the start of the counters of each output number ``index``."""
    spare = jnp.zeros(index.shape, double_fraction(jnp.zeros((), U32), U32(0)).dtype)
    return Supply(index * U32(RESERVED), index >> U32(24), spare, jnp.zeros(index.shape, bool))


def take(stream: Stream, supply: Supply, next_block, make, when):
    """Takes one number for every output where ``when`` holds; returns the new positions, too."""
    pair = make(block(stream, supply.low + next_block, supply.high))
    fresh = when & ~supply.has_spare
    value = jnp.where(supply.has_spare, supply.spare, pair[..., 1])
    spare = jnp.where(fresh, pair[..., 0], supply.spare)
    has_spare = jnp.where(when, ~supply.has_spare, supply.has_spare)
    return value, Supply(supply.low, supply.high, spare, has_spare), next_block + fresh.astype(U32)


def uniforms(words):
    return double_fraction(words[..., ::2], words[..., 1::2])


def gammas(stream, index, alpha):
    """Draws by Marsaglia and Tsang's method, with ``alpha`` for each output number."""
    small = alpha < 1
    d = alpha + jnp.where(small, 2 / 3, -1 / 3)
    c = 1 / (3 * lax.sqrt(d))

    def step(state):
        at, normal, uniform, done, out = state
        x, normal, at = take(stream, normal, at, lambda words: normals_of(words, np.float64), ~done)
        v = (1 + c * x) ** 3
        u, uniform, at = take(stream, uniform, at, uniforms, ~done & (v > 0))
        squeezed = u < 1 - 0.0331 * x**4
        exact = lax.log(u) < 0.5 * x * x + d * (1 - v + lax.log(v))
        good = ~done & (v > 0) & (squeezed | exact)
        return at, normal, uniform, done | good, jnp.where(good, d * v, out)

    start = supplies(index)
    state = (jnp.zeros(index.shape, U32), start, start, alpha == 1, jnp.zeros_like(alpha))
    at, _, uniform, _, out = lax.while_loop(lambda s: ~jnp.all(s[3]), step, state)
    u, _, _ = take(stream, uniform, at, uniforms, jnp.ones(index.shape, bool))
    shrunk = jnp.where(small, out * lax.pow(u, 1 / alpha), out)
    return jnp.where(alpha == 1, -lax.log1p(-u), shrunk)


def hoermann(rate, u, v):
    """Returns Hörmann's number for a pair of uniform ones, and whether it is accepted."""
    b = 0.931 + 2.53 * lax.sqrt(rate)
    a = -0.059 + 0.02483 * b
    u = u - 0.5
    shift = 0.5 - abs(u)
    k = lax.floor((2 * a / shift + b) * u + rate + 0.43)
    inner = (shift >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2))
    outer = (k < 0) | ((shift < 0.013) & (v > shift))
    s = lax.log(v * (1.1239 + 1.1328 / (b - 3.4)) / (a / (shift * shift) + b))
    return k, inner | (~outer & (s <= -rate + k * lax.log(rate) - lax.lgamma(k + 1)))


def poissons(stream, index, rate):
    """Draws by Knuth's method below a rate of 10, else by Hörmann's transformed rejection."""
    low, end = rate < 10, lax.exp(-rate)
    large = jnp.where(low, 10, rate)

    def step(state):
        at, done, product, out = state
        pair = uniforms(block(stream, base.low + at, base.high))
        first, second = product * pair[..., 1], product * pair[..., 1] * pair[..., 0]
        k, good = hoermann(large, pair[..., 1], pair[..., 0])
        good = jnp.where(low, second <= end, good)
        k = jnp.where(low, out + jnp.where(good & (first <= end), 0, jnp.where(good, 1, 2)), k)
        return at + U32(1), done | good, second, jnp.where(done, out, k)

    base = supplies(index)
    state = (jnp.zeros((), U32), jnp.zeros(index.shape, bool), jnp.ones_like(rate), 0 * rate)
    return lax.while_loop(lambda s: ~jnp.all(s[1]), step, state)[3]


def numbered(size, parameter):
    """Returns the parameter and the number of every output; samples of a parameter lie together."""
    kind = double_fraction(jnp.zeros((), U32), U32(0)).dtype
    wide = jnp.broadcast_to(parameter, size).astype(kind)
    inner = math.prod(parameter.shape)
    outer = math.prod(size) // max(inner, 1)
    index = lax.iota(U32, outer * inner).reshape(inner, outer).T
    return wide, index.reshape(size)


@partials(lambda _, alpha, drawn: lax.random_gamma_grad(alpha, drawn), None)
def with_gradient(alpha, drawn):
    return drawn


@handles("StatelessRandomGammaV2", "StatelessRandomGammaV3")
def gamma(run, node, inputs):
    size, stream, (alpha,) = stream_inputs(node, inputs)
    alpha = as_jax(alpha)
    wide, index = numbered(size, lax.stop_gradient(alpha))
    drawn = gammas(stream, index, wide).astype(alpha.dtype)
    return (with_gradient(jnp.broadcast_to(alpha, size), drawn),)


@handles("StatelessRandomPoisson")
def poisson(run, node, inputs):
    size, stream, (rate,) = stream_inputs(node, inputs)
    wide, index = numbered(size, lax.stop_gradient(as_jax(rate)))
    return (poissons(stream, index, wide).astype(node.attr("dtype")),)
