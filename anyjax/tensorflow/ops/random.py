"""Random numbers of TensorFlow's global state: drawn from the ``rng`` key of the call instead.

They follow the distribution, not TensorFlow's stream of bits; the attributes ``seed`` and
``seed2`` do not count.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from anyjax.stablehlo.core.static_values import sizes
from anyjax.tensorflow.core.schema import Static, lowers


@lowers("RandomUniform")
def uniform(rng, shape: Static, seed, seed2, dtype):
    return jax.random.uniform(rng, sizes(shape), dtype)


@lowers("RandomUniformInt")
def uniform_int(rng, shape: Static, minval, maxval, seed, seed2):
    return jax.random.randint(rng, sizes(shape), minval, maxval, minval.dtype)


@lowers("RandomStandardNormal")
def normal(rng, shape: Static, seed, seed2, dtype):
    return jax.random.normal(rng, sizes(shape), dtype)


@lowers("TruncatedNormal")
def truncated_normal(rng, shape: Static, seed, seed2, dtype):
    return jax.random.truncated_normal(rng, -2, 2, sizes(shape), dtype)


@lowers("RandomGamma")
def gamma(rng, shape: Static, alpha, seed, seed2):
    """``shape`` draws for each alpha, with a gradient by alpha."""
    return jax.random.gamma(rng, alpha, (*sizes(shape), *alpha.shape), alpha.dtype)


def _poisson(rng, shape, rate, dtype):
    rate = jax.lax.stop_gradient(rate).astype("float32")
    return jax.random.poisson(rng, rate, (*sizes(shape), *rate.shape)).astype(dtype)


@lowers("RandomPoisson")
def poisson(rng, shape: Static, rate, seed, seed2):
    return _poisson(rng, shape, rate, rate.dtype)


@lowers("RandomPoissonV2")
def poisson_v2(rng, shape: Static, rate, seed, seed2, dtype):
    return _poisson(rng, shape, rate, dtype)


@lowers("RandomShuffle")
def shuffle(rng, value, seed, seed2):
    return jax.random.permutation(rng, value)


@lowers("Multinomial")
def multinomial(rng, logits, num_samples: Static, seed, seed2, output_dtype):
    shape = (int(num_samples), logits.shape[0])
    samples = jax.random.categorical(rng, logits.astype("float32"), -1, shape=shape)
    return samples.T.astype(output_dtype)


@lowers("ParameterizedTruncatedNormal")
def parameterized(rng, shape: Static, means, stdevs, minvals, maxvals, seed, seed2):
    """Each parameter is a number, or one for each row."""
    size = sizes(shape)
    rows = lambda x: x.reshape(-1, *[1] * (len(size) - 1)) if x.size > 1 else x.reshape(())
    mean, scale, low, high = map(rows, (means, stdevs, minvals, maxvals))
    drawn = jax.random.truncated_normal(
        rng, (low - mean) / scale, (high - mean) / scale, size, mean.dtype
    )
    return jnp.clip(drawn * scale + mean, low, high)
