"""Regions of one operation: sums, maxima and the like, which JAX has a faster form for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax import lax

from tojax.stablehlo.core.region import Region

OPERATIONS: dict[str, Callable] = {
    "stablehlo.add": lax.add,
    "stablehlo.multiply": lax.mul,
    "stablehlo.maximum": lax.max,
    "stablehlo.minimum": lax.min,
    "stablehlo.and": lax.bitwise_and,
    "stablehlo.or": lax.bitwise_or,
    "stablehlo.xor": lax.bitwise_xor,
}


def monoid(region: Region) -> Callable | None:
    """The operation that a region applies to its two inputs, None if it does anything else."""
    if len(region.operations) != 1 or len(region.inputs) != 2:
        return None
    (op,) = region.operations
    operands = [x for kind, x in op.arguments if kind == "value"]
    if op.outputs != region.outputs or sorted(operands) != sorted(region.inputs):
        return None
    return OPERATIONS.get(op.name)


def returned(region: Region) -> int | None:
    """Which of its inputs a region returns unchanged, None if it computes something."""
    if region.operations or len(region.outputs) != 1 or region.outputs[0] not in region.inputs:
        return None
    return region.inputs.index(region.outputs[0])


def value_region(body: Any) -> Region:
    """The region behind a function that a lowering was given."""
    return body.region
