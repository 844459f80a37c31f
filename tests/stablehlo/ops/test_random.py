"""Random bits by StableHLO's generators."""

import jax
import numpy as np
import pytest

from anyjax.errors import Unsupported
from tests.stablehlo.agree import assert_agrees
from tests.stablehlo.texts import called, function


def test_key_of_the_generator():
    """Its state of 64 bits is two of 32 where JAX has no more."""
    key = jax.random.key_data(jax.random.key(3, impl="rbg"))
    draw = lambda k: jax.random.uniform(jax.random.wrap_key_data(k, impl="rbg"), (4,))
    assert_agrees(draw, np.asarray(key), vmap=False)


def test_without_a_key():
    body = """%a = stablehlo.constant dense<0.0> : tensor<f32>
      %b = stablehlo.constant dense<1.0> : tensor<f32>
      %s = stablehlo.constant dense<[2]> : tensor<1xi64>
      %out = stablehlo.rng %a, %b, %s, distribution = UNIFORM
        : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<2xf32>"""
    with pytest.raises(Unsupported, match="numbers drawn from a key"):
        called(function("f32", "2xf32", body), np.float32(0))


def test_wide_bits():
    body = """%out:2 = stablehlo.rng_bit_generator %0, algorithm = THREE_FRY
        : (tensor<2xui64>) -> (tensor<2xui64>, tensor<3xui64>)"""
    with pytest.raises(Unsupported, match="64-bit"):
        called(function("2xui64", "2xui64 3xui64", body), np.array([1, 2], np.uint64))
