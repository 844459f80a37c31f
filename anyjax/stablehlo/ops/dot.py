"""Products of matrices and tensors."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from anyjax.dtypes import is_float
from anyjax.stablehlo.core.schema import lowers


def precision_of(config):
    """Returns JAX's name for StableHLO's precision of each operand."""
    return None if not config or set(config) == {"DEFAULT"} else tuple(x.lower() for x in config)


def sum_type(result, operand):
    """Returns the dtype of the sums: floats where products of integers are checked in floats."""
    return operand.dtype if is_float(operand.dtype) > is_float(result.dtype) else result.dtype


@lowers("stablehlo.dot_general")
def dot_general(result, lhs, rhs, numbers, precision, algorithm, /):
    return lax.dot_general(
        lhs,
        rhs,
        (
            (numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions),
            (numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions),
        ),
        precision=algorithm_of(algorithm) or precision_of(precision),
        preferred_element_type=sum_type(result, lhs),
    )


def algorithm_of(record):
    """Returns JAX's name for a product's algorithm, None for the device's default."""
    if record is None:
        return None
    kinds = record.lhs_precision_type, record.rhs_precision_type, record.accumulation_type
    count = record.num_primitive_operations
    name = "_".join(kinds).upper() + (f"_X{count}" if count > 1 else "")
    return getattr(lax.DotAlgorithmPreset, name, None)


@lowers("stablehlo.dot")
def dot(result, lhs, rhs, precision, /):
    return lax.dot(
        lhs, rhs, precision=precision_of(precision), preferred_element_type=sum_type(result, lhs)
    )


@lowers("stablehlo.einsum")
def einsum(result, lhs, rhs, config, /):
    return jnp.einsum(config, lhs, rhs, preferred_element_type=sum_type(result, lhs))


@lowers("stablehlo.unary_einsum")
def unary_einsum(result, operand, config, /):
    return jnp.einsum(config, operand)


@lowers("chlo.ragged_dot")
def ragged_dot(result, lhs, rhs, group_sizes, numbers, precision, /):
    dimensions = lax.RaggedDotDimensionNumbers(
        (
            (numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions),
            (numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions),
        ),
        numbers.lhs_ragged_dimensions,
        numbers.rhs_group_dimensions,
    )
    return lax.ragged_dot_general(
        lhs,
        rhs,
        group_sizes,
        dimensions,
        precision=precision_of(precision),
        preferred_element_type=sum_type(result, lhs),
    )
