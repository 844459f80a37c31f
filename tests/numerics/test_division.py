"""Quotients by one number under jit: what rounds them to integers sees the framework's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax import lax

import anyjax
from anyjax.numerics.division import divide

COUNTS = np.arange(0, 20000)
DIVISORS = [3.0, 41.0, 55.0, 0.1, -49.0, 64.0]
ROUNDED = {
    "floor": lambda x, c: torch.floor(x / c),
    "long": lambda x, c: (x / c).long(),
    "trunc": lambda x, c: torch.div(x, c, rounding_mode="trunc"),
    "floored": lambda x, c: torch.div(x, c, rounding_mode="floor"),
    "//": lambda x, c: x // c,
    "%": lambda x, c: x % c,
    "tensor": lambda x, c: torch.ceil(x / torch.tensor(c)),
}


@pytest.mark.parametrize("dtype", ["int32", "float32"])
@pytest.mark.parametrize("name", ROUNDED)
def test_rounded(name, dtype):
    """41 times the reciprocal of 41 is below 1: a row of a table too early."""
    x = COUNTS.astype(dtype)
    for divisor in DIVISORS:
        want = ROUNDED[name](torch.from_numpy(x), divisor)
        got = anyjax.from_torch(lambda x, c=divisor: ROUNDED[name](x, c))(x)
        np.testing.assert_array_equal(got, want)


def test_divisor_that_is_traced():
    got = jax.jit(divide)(COUNTS.astype(np.float32), np.float32(41))
    np.testing.assert_array_equal(got, COUNTS.astype(np.float32) / np.float32(41))


@pytest.mark.parametrize("divisor", [41.0, 2.0])
def test_transformations(divisor):
    """Both gradients, vmap over either operand, in float16 and of complex numbers, too."""
    c, x = np.float32(divisor), np.linspace(1, 3, 5, dtype=np.float32)
    by_x, by_c = jax.grad(lambda x, c: divide(x, c).sum(), (0, 1))(x, c)
    np.testing.assert_allclose(by_x, np.full(5, 1 / c), rtol=1e-6)
    np.testing.assert_allclose(by_c, -(x / c**2).sum(), rtol=1e-6)
    for rows in (COUNTS.astype(np.float32), COUNTS.astype(np.float32)[:, None]):
        np.testing.assert_array_equal(jax.jit(jax.vmap(divide, (0, None)))(rows, c), rows / c)
    np.testing.assert_array_equal(jax.vmap(divide, (None, 0))(x, jnp.stack([c, c]))[1], x / c)
    assert divide(np.float16(x), np.float16(c)).dtype == np.float16
    np.testing.assert_allclose(divide(x + 1j, np.complex64(c)), (x + 1j) / c, rtol=1e-6)


def test_no_more_memory_than_a_product():
    """The divisor is not an array of its own in the compiled program."""
    x = jax.ShapeDtypeStruct((512, 512), np.float32)
    compiled = jax.jit(lambda x: lax.exp(divide(x, np.float32(41)))).lower(x).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 4096


@pytest.mark.parametrize("name", ["floor", "//"])
def test_tensorflow(name):
    """As eager TensorFlow; a tf.function's own optimizer multiplies by the reciprocal."""
    tf = pytest.importorskip("tensorflow")
    x, c = COUNTS.astype(np.float32), np.float32(41)

    def rounded(x):
        return tf.floor(x / c) if name == "floor" else x // c

    got = anyjax.from_tensorflow(tf.function(rounded, autograph=False), x)(x)
    np.testing.assert_array_equal(got, rounded(tf.constant(x)))
