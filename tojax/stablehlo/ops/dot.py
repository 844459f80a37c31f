"""Products."""

from __future__ import annotations

from jax import lax

from tojax.stablehlo.core.schema import lowers


def precision_of(config):
    """JAX's name for StableHLO's precision of each operand."""
    return None if not config or set(config) == {"DEFAULT"} else tuple(x.lower() for x in config)


@lowers("stablehlo.dot_general")
def dot_general(result, lhs, rhs, numbers, precision, algorithm, /):
    return lax.dot_general(
        lhs,
        rhs,
        (
            (numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions),
            (numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions),
        ),
        precision=precision_of(precision),
        preferred_element_type=result.dtype,
    )


@lowers("stablehlo.dot")
def dot(result, lhs, rhs, precision, /):
    return lax.dot(lhs, rhs, precision=precision_of(precision), preferred_element_type=result.dtype)
