"""Operations element by element."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.stablehlo.agree import agree

X = np.array([[-2.0, -0.5, 0.3], [0.25, 1.0, 3.0]], np.float32)


@pytest.mark.parametrize("function", [jnp.sin, jnp.exp, jnp.tanh, jax.nn.softmax, jnp.sort])
def test_unary(function):
    agree(function, X)
