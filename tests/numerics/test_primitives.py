"""Primitives of our own: values, types and rules are those that they were made of."""

import jax
import jax.numpy as jnp
import numpy as np

from anyjax.numerics.primitives import primitive

scaled = primitive(
    "scaled",
    lambda x: [3 * x, x],
    lambda x: [x, x],
    jvp=lambda primals, tangents: (scaled.bind(*primals), scaled.bind(*tangents)),
    vmap=lambda operands, axes: (scaled.bind(*operands), axes * 2),
    transpose=lambda cotangents, x: [3 * cotangents[0] + cotangents[1]],
)


def test_all_transformations():
    function = lambda x: jnp.stack(scaled.bind(x)).sum()
    x = jnp.arange(3.0)
    assert function(x) == jax.jit(function)(x) == 12
    np.testing.assert_array_equal(jax.grad(function)(x), np.full(3, 4.0))
    np.testing.assert_array_equal(jax.jvp(function, (x,), (x,))[1], 12)
    np.testing.assert_array_equal(jax.vmap(function)(x), 4 * x)
