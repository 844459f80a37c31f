"""Random numbers: torch's distributions, drawn from the ``rng`` key of the call.

Draws follow the distribution, not torch's stream of bits. In-place forms arrive with the old values
as ``self``, of which only shape and dtype matter.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.errors import Unsupported
from anyjax.torch.core.schema import aten, lowers, table
from anyjax.torch.ops._operands import (
    cast,
    default_float,
    default_int,
    exact,
    operands,
    select,
    wide,
)


def normal(rng, shape, dtype, /):
    """Standard normal; torch draws 16-bit floats in float32."""
    dtype = dtype or default_float()
    if dtype.kind == "c" or dtype.itemsize >= 4:
        return jax.random.normal(rng, shape, dtype)
    return jax.random.normal(rng, shape, np.float32).astype(dtype)


def uniform(rng, shape, dtype, /):
    """In [0, 1); complex numbers have both parts there."""
    dtype = dtype or default_float()
    if dtype.kind == "c":
        real = np.float64 if dtype.itemsize == 16 else np.float32
        return lax.complex(*(jax.random.uniform(key, shape, real) for key in jax.random.split(rng)))
    return jax.random.uniform(rng, shape, dtype)


@lowers(aten.randint.low, aten.randint.low_generator)
def integers(rng, low, high, size, dtype):
    """In [low, high), in the dtype asked for."""
    if not isinstance(high, (int, float)):
        return jax.random.randint(rng, size, low, high).astype(dtype)
    if high <= low:
        raise ValueError(f"random_ expects low < high, but got {low} >= {high}")
    limits = np.iinfo(np.int32 if default_int().itemsize == 4 else np.int64)
    if low < limits.min or high - 1 > limits.max:
        if (low, high) != (0, 2**63):
            raise Unsupported(
                f"random integers from {low} to {high}",
                why="JAX keeps 32-bit integers unless x64 is on",
                do='call jax.config.update("jax_enable_x64", True) first',
            )
        high = limits.max + 1
    return jax.random.randint(rng, size, low, high, default_int()).astype(dtype)


def _open(rng, x):
    """Uniform in (0, 1], in float32 at least, for the logarithm."""
    dtype = default_float() if exact(x) else wide(x).dtype
    return 1 - jax.random.uniform(rng, x.shape, dtype)


def _coins(rng, x, p, /):
    p = wide(p) if isinstance(p, jax.Array) else p
    return jax.random.bernoulli(rng, p, x.shape).astype(x.dtype)


table.update(
    {
        aten.rand.default: uniform,
        aten.randn.default: normal,
        aten.rand.generator: uniform,
        aten.randn.generator: normal,
        aten.rand_like: lambda rng, self, dtype: uniform(rng, self.shape, dtype or self.dtype),
        aten.randn_like: lambda rng, self, dtype: normal(rng, self.shape, dtype or self.dtype),
        aten.normal.float_float: lambda rng, mean, std, size, dtype: (
            mean + std * normal(rng, size, dtype)
        ),
        aten.normal_functional: lambda rng, self, mean, std: (
            mean + std * normal(rng, self.shape, self.dtype)
        ),
        aten.cauchy: lambda rng, self, median, sigma: cast(
            median + sigma * jax.random.cauchy(rng, self.shape, wide(self).dtype), self.dtype
        ),
        aten.exponential: lambda rng, self, lambd: cast(
            -jnp.log(_open(rng, self)) / lambd, self.dtype
        ),
        aten.log_normal: lambda rng, self, mean, std: cast(
            jnp.exp(mean + std * normal(rng, self.shape, wide(self).dtype)), self.dtype
        ),
        aten.geometric: lambda rng, self, p: cast(
            jnp.ceil(jnp.log(_open(rng, self)) / np.log1p(-p)).clip(1)
            if p < 1
            else jnp.ones(self.shape),
            self.dtype,
        ),
        aten.bernoulli.default: lambda rng, self: _coins(rng, self, self),
        aten.bernoulli.p: _coins,
        aten.bernoulli.Tensor: _coins,
        aten._standard_gamma: lambda rng, self: jax.random.gamma(rng, self, dtype=self.dtype),
        aten._standard_gamma_grad: lax.random_gamma_grad,
        aten._sample_dirichlet: lambda rng, self: jax.random.dirichlet(rng, self, dtype=self.dtype),
    }
)


@lowers(aten.normal.Tensor_float, aten.normal.float_Tensor, aten.normal.Tensor_Tensor)
def normal_of_tensors(rng, mean, std):
    """Mean and standard deviation broadcast; draws carry gradient to neither."""
    mean, std = map(lax.stop_gradient, operands(mean, std))
    shape = lax.broadcast_shapes(np.shape(mean), np.shape(std))
    return mean + std * normal(rng, shape, mean.dtype)


@lowers(aten.uniform)
def uniform_functional(rng, self, low, high, /):
    """The schema calls the lower bound ``from``."""
    return low + (high - low) * uniform(rng, self.shape, self.dtype)


@lowers(aten.randint.default, aten.randint.generator)
def randint(rng, high, size, dtype):
    return integers(rng, 0, high, size, dtype)


@lowers(
    aten.randint_like.default,
    aten.randint_like.generator,
    aten.randint_like.Tensor,
    aten.randint_like.Tensor_generator,
)
def randint_like(rng, self, high, dtype):
    return integers(rng, 0, high, self.shape, dtype or self.dtype)


@lowers(aten.randint_like.low_dtype, aten.randint_like.low_generator_dtype)
def randint_like_from(rng, self, low, high, dtype):
    return integers(rng, low, high, self.shape, dtype or self.dtype)


table.update(
    {
        aten.randperm: lambda rng, n, dtype: jax.random.permutation(rng, n).astype(dtype),
        aten.random.to: lambda rng, self, to: integers(rng, 0, to, self.shape, self.dtype),
        aten.random.default: lambda rng, self: random_from(rng, self, 0, None),
    }
)


def _default_high(dtype):
    """random_() without bounds: all non-negative integers, or those that a float holds exactly."""
    if dtype.kind == "b":
        return 2
    if dtype.kind in "iu":
        return min(np.iinfo(dtype).max + 1, np.iinfo(default_int()).max)
    return min(2 ** (jnp.finfo(dtype).nmant + 1) + 1, np.iinfo(default_int()).max)


@lowers(getattr(aten.random, "from"))
def random_from(rng, self, low, high, /):
    """The schema calls the lower bound ``from``; without an upper one all integers above it."""
    high = _default_high(self.dtype) if high is None else high
    return integers(rng, low, high, self.shape, self.dtype)


def dropout_mask(rng, shape, p):
    """True where a value is kept."""
    return jax.random.bernoulli(rng, 1 - p, shape)


def dropped(rng, x, p, shape):
    """``x`` times a mask of this shape, and a scale that keeps the mean."""
    if p == 1:
        return x * 0
    return select(dropout_mask(rng, shape, p), x * (1 / (1 - p)), 0)


@lowers(aten.dropout)
def dropout(rng, input, p, train):
    return dropped(rng, input, p, input.shape) if train and p else input


@lowers(aten.native_dropout)
def native_dropout(rng, input, p, train):
    """The mask is the second result; train=None means True."""
    if train is False or not p:
        return input, jnp.ones(input.shape, bool)
    if p == 1:
        return jnp.zeros_like(input), jnp.zeros(input.shape, bool)
    mask = dropout_mask(rng, input.shape, p)
    return select(mask, input * (1 / (1 - p)), 0), mask


@lowers(aten.feature_dropout)
def feature_dropout(rng, input, p, train):
    """Whole channels: axes 0 and 1 have one coin each."""
    shape = (*input.shape[:2], *[1] * (input.ndim - 2))
    return dropped(rng, input, p, shape) if train and p else input


def _alpha_dropout(rng, x, p, shape):
    """Dropped values become SELU's negative limit; scale and shift restore mean 0, variance 1."""
    if p == 1:
        return x * 0
    alpha = 1.7580993408473766
    scale = ((alpha**2 * p + 1) * (1 - p)) ** -0.5
    dropped = select(dropout_mask(rng, shape, p), x, -alpha)
    return dropped * scale + alpha * p * scale


@lowers(aten.alpha_dropout)
def alpha_dropout(rng, input, p, train):
    return _alpha_dropout(rng, input, p, input.shape) if train and p else input


@lowers(aten.feature_alpha_dropout)
def feature_alpha_dropout(rng, input, p, train):
    shape = (*input.shape[:2], *[1] * (input.ndim - 2))
    return _alpha_dropout(rng, input, p, shape) if train and p else input


@lowers(aten.multinomial)
def multinomial(rng, self, num_samples, replacement):
    """Weights need not be normalised; without replacement by the Gumbel top-k trick."""
    logits = jnp.log(wide(self))
    if replacement:
        shape = (num_samples, *self.shape[:-1])
        return jnp.moveaxis(jax.random.categorical(rng, logits, -1, shape), 0, -1).astype(
            default_int()
        )
    scores = logits + jax.random.gumbel(rng, logits.shape, logits.dtype)
    return lax.top_k(scores, num_samples)[1].astype(default_int())


@lowers(aten.poisson)
def poisson(rng, self):
    """jax.random.poisson knows only the threefry generator."""
    key = jax.random.wrap_key_data(jax.random.bits(rng, (2,), np.uint32), impl="threefry2x32")
    return jax.random.poisson(key, lax.stop_gradient(wide(self))).astype(self.dtype)


@lowers(aten.binomial)
def binomial(rng, count, prob):
    count, prob = map(lax.stop_gradient, operands(count, prob))
    return jax.random.binomial(rng, wide(count), wide(prob)).astype(count.dtype)


def _rrelu(rng, x, lower, upper, training):
    """(result, slopes); the slope is the mean of the bounds outside of training."""
    if not training:
        return select(x > 0, x, x * ((lower + upper) / 2)), None
    slopes = uniform(rng, x.shape, x.dtype) * (upper - lower) + lower
    slopes = select(x <= 0, slopes, 1)
    return x * slopes, slopes


@lowers(aten.rrelu)
def rrelu(rng, self, lower, upper, training):
    return _rrelu(rng, self, lower, upper, training)[0]


@lowers(aten.rrelu_with_noise_functional)
def rrelu_with_noise(rng, self, noise, lower, upper, training):
    out, slopes = _rrelu(rng, self, lower, upper, training)
    return out, noise if slopes is None else slopes
