"""Regions of one operation, such as sums and maxima, for which JAX has a faster form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike

from anyjax.stablehlo.core.region import Region

OPERATIONS: dict[str, Callable] = {
    "stablehlo.add": lax.add,
    "stablehlo.multiply": lax.mul,
    "stablehlo.maximum": lax.max,
    "stablehlo.minimum": lax.min,
    "stablehlo.and": lax.bitwise_and,
    "stablehlo.or": lax.bitwise_or,
    "stablehlo.xor": lax.bitwise_xor,
}


# The same operations of booleans, which JAX's arithmetic does not take.
LOGICAL: dict[Callable, Callable] = {
    lax.add: lax.bitwise_or,
    lax.max: lax.bitwise_or,
    lax.mul: lax.bitwise_and,
    lax.min: lax.bitwise_and,
}


def monoid(region: Region) -> Callable | None:
    """Returns the operation that a region applies to its two inputs, None if it does more."""
    if len(region.operations) != 1 or len(region.inputs) != 2:
        return None
    (op,) = region.operations
    operands = [x for kind, x in op.arguments if kind == "value"]
    if op.outputs != region.outputs or sorted(operands) != sorted(region.inputs):
        return None
    operation = OPERATIONS.get(op.name)
    if operation is not None and region.types[0].wide.kind == "b":
        return LOGICAL.get(operation, operation)
    return operation


def identity(operation: Callable, dtype: DTypeLike) -> np.ndarray:
    """Returns the identity of an operation: 0 of a sum, the lowest number of a maximum."""
    if operation in (lax.max, lax.min):
        floats = jnp.issubdtype(dtype, jnp.inexact)
        limits: Any = jnp.finfo(dtype) if floats else jnp.iinfo(dtype)
        lowest, highest = limits.min, limits.max
        if floats and np.isinf(np.array(np.inf, dtype)):
            lowest, highest = -np.inf, np.inf
        return np.array(lowest if operation is lax.max else highest, dtype)
    ones = operation in (lax.mul, lax.bitwise_and)
    if operation is lax.bitwise_and and np.dtype(dtype).kind != "b":
        return np.array(-1).astype(dtype)
    return np.array(ones, dtype)


def returned(region: Region) -> int | None:
    """Returns the place of the input that a region returns, None if it computes something."""
    if region.operations or len(region.outputs) != 1 or region.outputs[0] not in region.inputs:
        return None
    return region.inputs.index(region.outputs[0])
