"""Bytes as numbers, beside the libraries that made them."""

import jax
import jax.numpy as jnp
import numpy as np
from torch import nn

import tojax
from tojax.transforms import quantize
from tojax.transforms.numbers import SCHEMES


def test_numbers_are_those_of_the_libraries():
    """All bytes of fp8 but the two that are no number; qwix's rounding of the nf4 codes."""
    every = jnp.array([x for x in range(256) if x & 127 != 127], jnp.uint8)
    (got,) = jax.jit(SCHEMES["fp8"].numbers)(every)
    want = jax.lax.bitcast_convert_type(every, jnp.float8_e4m3fn).astype(jnp.float32)
    np.testing.assert_array_equal(got, want)
    codes = jnp.arange(16, dtype=jnp.uint8)
    low, high = jax.jit(SCHEMES["nf4"].numbers)(codes | (codes << 4))
    np.testing.assert_array_equal(low, high)
    model = tojax.from_torch(nn.Linear(16, 1)).with_params({"weight": low[None], "bias": low[:1]})
    small = quantize(model, "nf4", block=16)
    opened, _ = small.source.opened(small.params, small.state)
    np.testing.assert_array_equal(opened["weight"][0], low)
