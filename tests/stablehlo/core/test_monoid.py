"""Identities of operations."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from anyjax.stablehlo.core.monoid import LOGICAL, OPERATIONS, identity

pytestmark = pytest.mark.sample(every=8)

DTYPES = ["float32", "bfloat16", "int32", "uint8", "int8", "float8_e4m3fn"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_identity(name, dtype):
    operation, dtype = OPERATIONS[name], jnp.dtype(dtype)
    if operation is lax.bitwise_xor or (operation in LOGICAL.values() and dtype.kind not in "iu"):
        return
    x = jnp.asarray([-3, 0, 5]).astype(dtype)
    np.testing.assert_array_equal(operation(x, jnp.asarray(identity(operation, dtype))), x)


@pytest.mark.parametrize("operation", [lax.bitwise_or, lax.bitwise_and])
def test_identity_of_booleans(operation):
    x = jnp.asarray([True, False])
    np.testing.assert_array_equal(operation(x, identity(operation, np.dtype(bool))), x)
