"""Scatter: an update that does not fit is dropped."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from anyjax.stablehlo.core.monoid import monoid, returned
from anyjax.stablehlo.core.schema import lowers
from anyjax.stablehlo.ops.gather import last_axis
from anyjax.stablehlo.ops.reduce import elementwise

KINDS = {
    lax.add: lax.scatter_add,
    lax.mul: lax.scatter_mul,
    lax.min: lax.scatter_min,
    lax.max: lax.scatter_max,
}


@lowers("stablehlo.scatter")
def scatter(result, inputs, indices, updates, numbers, unique, computation, /):
    vectors = last_axis(indices, numbers.index_vector_dim)
    kind = kind_of(computation.region)
    if kind is None:
        at = places(inputs[0].shape, vectors, numbers, updates[0].shape)
        rows = [window_last(x, numbers) for x in updates]
        return apply_windows(computation, inputs, window_last(at, numbers), rows, unique)
    dimensions = lax.ScatterDimensionNumbers(
        tuple(numbers.update_window_dims),
        tuple(numbers.inserted_window_dims),
        tuple(numbers.scattered_dims_to_operand_dims),
        tuple(numbers.input_batching_dims),
        tuple(numbers.scatter_indices_batching_dims),
    )
    how = {"unique_indices": bool(unique), "mode": "drop"}
    return kind(inputs[0], vectors, updates[0], dimensions, **how)


def kind_of(region):
    """Returns JAX's scatter for a computation, None if there is none."""
    if len(region.inputs) != 2:
        return None
    if returned(region) == 1:
        return lax.scatter
    (op,) = region.operations if len(region.operations) == 1 else (None,)
    if op is not None and op.name == "stablehlo.subtract":
        in_order = [x for _, x in op.arguments] == region.inputs and op.outputs == region.outputs
        return lax.scatter_sub if in_order else None
    return KINDS.get(monoid(region))


def places(shape, indices, numbers, updates_shape):
    """Returns the place of each element of the updates in the flat operand, -1 outside of it, by a
    gather of the places.
    """
    window = iter([updates_shape[i] for i in numbers.update_window_dims])
    outside = {*numbers.inserted_window_dims, *numbers.input_batching_dims}
    sizes = [1 if i in outside else next(window) for i in range(len(shape))]
    mirrored = lax.GatherDimensionNumbers(
        tuple(numbers.update_window_dims),
        tuple(numbers.inserted_window_dims),
        tuple(numbers.scattered_dims_to_operand_dims),
        tuple(numbers.input_batching_dims),
        tuple(numbers.scatter_indices_batching_dims),
    )
    flat = jnp.arange(jnp.size(jnp.empty(shape))).reshape(shape)
    return lax.gather(flat, indices, mirrored, tuple(sizes), mode="fill", fill_value=-1)


def window_last(x, numbers):
    """Reshapes to [number of windows, elements of a window]."""
    inside = list(numbers.update_window_dims)
    outside = [i for i in range(x.ndim) if i not in inside]
    count = 1
    for i in outside:
        count *= x.shape[i]
    return lax.transpose(x, [*outside, *inside]).reshape(count, -1)


def apply_windows(computation, inputs, at, updates, unique):
    """Applies a computation window after window; all at once if no two of them overlap."""
    combine = elementwise(computation)
    shape, size = inputs[0].shape, inputs[0].size
    if not size or not at.size:
        return list(inputs)

    def put(flat, row):
        place, *new = row
        out = combine(*(x[place] for x in flat), *new)
        beyond = jnp.where(place < 0, size, place)
        return [x.at[beyond].set(y, mode="drop") for x, y in zip(flat, out)], None

    flat = [x.reshape(-1) for x in inputs]
    flat = (put if unique else lambda *both: lax.scan(put, *both))(flat, (at, *updates))[0]
    return [x.reshape(shape) for x in flat]
