"""Calls, composites, and where an error happened."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.stablehlo.agree import assert_agrees
from tests.stablehlo.texts import called, function

X = np.arange(4, dtype=np.float32)


def test_composite():
    assert_agrees(
        lambda x: jax.lax.composite(lambda y: jnp.sin(y) + 1, "my.function")(x),
        X,
        grad=False,
        vmap=False,
    )


def test_errors_say_where():
    body = "%out = stablehlo.rng_bit_generator %0, algorithm = DEFAULT : "
    text = function("2xui64", "2xui64 4xui64", body.replace("%out", "%out:2") + (
        "(tensor<2xui64>) -> (tensor<2xui64>, tensor<4xui64>)"))  # fmt: skip
    with pytest.raises(Exception, match=r"where: stablehlo\.rng_bit_generator at"):
        called(text, np.array([1, 2], np.uint64))
