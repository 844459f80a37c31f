"""Random numbers, from the keys of a call; the attribute ``seed`` belongs to ONNX's own streams."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from anyjax.dtypes import canonical
from anyjax.onnx.core.running import handles
from anyjax.onnx.core.schema import lowers
from anyjax.stablehlo.core.static_values import as_jax, is_known


def _dtype(dtype, like=jnp.float32):
    return canonical(like if dtype is None else dtype)


@lowers("RandomNormal")
def random_normal(rng, dtype, mean, scale, seed, shape):
    return mean + scale * jax.random.normal(rng, shape, _dtype(dtype))


@lowers("RandomNormalLike")
def random_normal_like(rng, input, dtype, mean, scale, seed):
    return mean + scale * jax.random.normal(rng, input.shape, _dtype(dtype, input.dtype))


@lowers("RandomUniform")
def random_uniform(rng, dtype, high, low, seed, shape):
    return jax.random.uniform(rng, shape, _dtype(dtype), low, high)


@lowers("RandomUniformLike")
def random_uniform_like(rng, input, dtype, high, low, seed):
    return jax.random.uniform(rng, input.shape, _dtype(dtype, input.dtype), low, high)


@lowers("Bernoulli")
def bernoulli(rng, input, dtype, seed):
    return jax.random.bernoulli(rng, input).astype(_dtype(dtype, input.dtype))


@lowers("Multinomial")
def multinomial(rng, input, dtype, sample_size, seed):
    """The input is of logarithms of probabilities, up to a constant for each row."""
    drawn = jax.random.categorical(rng, input, -1, (sample_size, len(input)))
    return drawn.T.astype(_dtype(dtype, jnp.int32))


@handles("Dropout")
def dropout(run, node, inputs):
    """Draws where ``training_mode`` is true; the second output is what is left."""
    data, ratio, training = (*inputs, None, None)[:3]
    ratio = node.attributes.get("ratio", 0.5) if ratio is None else ratio
    is_idle = training is None or (is_known(training) and not training.item())
    if is_idle or (is_known(ratio) and not ratio.item()):
        return as_jax(data), lambda: jnp.ones(data.shape, bool)
    rest = 1 - jnp.asarray(as_jax(ratio), data.dtype)
    mask = jax.random.bernoulli(run.key(node), rest, data.shape)
    mask = mask if is_known(training) else mask | ~training
    scale = 1 / rest if is_known(training) else jnp.where(training, 1 / rest, 1)
    return jnp.where(mask, data * scale, 0).astype(data.dtype), mask
