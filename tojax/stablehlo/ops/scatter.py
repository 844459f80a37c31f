"""Scatter: an update that does not fit is left out."""

from __future__ import annotations

from jax import lax

from tojax.errors import Unsupported
from tojax.stablehlo.core.monoid import monoid, returned
from tojax.stablehlo.core.schema import lowers
from tojax.stablehlo.ops.gather import last_axis

KINDS = {
    lax.add: lax.scatter_add,
    lax.mul: lax.scatter_mul,
    lax.min: lax.scatter_min,
    lax.max: lax.scatter_max,
}


@lowers("stablehlo.scatter")
def scatter(result, inputs, indices, updates, numbers, computation, /):
    region = computation.region
    kind = lax.scatter if returned(region) == 1 else KINDS.get(monoid(region))
    if kind is None or len(inputs) != 1:
        raise Unsupported(
            "a scatter with a computation of its own",
            why="JAX scatters by replacing, adding, multiplying, or the smaller or larger value",
            do="write it as one of these",
        )
    placed = lax.ScatterDimensionNumbers(
        tuple(numbers.update_window_dims),
        tuple(numbers.inserted_window_dims),
        tuple(numbers.scattered_dims_to_operand_dims),
        tuple(numbers.input_batching_dims),
        tuple(numbers.scatter_indices_batching_dims),
    )
    where = last_axis(indices, numbers.index_vector_dim)
    return kind(inputs[0], where, updates[0], placed, mode="drop")
