"""Elements by their places: gathers and scatters."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from anyjax.errors import Unsupported
from anyjax.numerics.scatter import multiply_at
from anyjax.onnx.core.schema import lowers, update


@lowers("Gather")
def gather(data, indices, axis):
    return jnp.take(data, _positive(indices, data.shape[axis]), axis)


def _positive(indices, size):
    """Counts negative indices from the end."""
    if not jnp.issubdtype(indices.dtype, jnp.signedinteger):
        return indices
    return jnp.where(indices < 0, indices + size, indices)


@lowers("GatherElements")
def gather_elements(data, indices, axis):
    """The indices may be smaller than the data in the other axes."""
    return data[_along(data, indices, axis)]


def _along(data, indices, axis):
    """Returns the index of elements along an axis, at their own places in the others."""
    axis %= data.ndim
    places = list(jnp.ogrid[tuple(slice(n) for n in indices.shape)])
    places[axis] = _positive(indices, data.shape[axis])
    return tuple(places)


@lowers("GatherND")
def gather_nd(data, indices, batch_dims):
    function = lambda data, indices: data[_tuple(data, indices)]
    for _ in range(batch_dims):
        function = jax.vmap(function)
    return function(data, indices)


def _tuple(data, indices):
    """Returns the index whose last axis are places in the first axes of the data."""
    columns = jnp.moveaxis(indices, -1, 0)
    return tuple(_positive(c, n) for c, n in zip(columns, data.shape))


REDUCTIONS = {"none": "set", "add": "add", "max": "max", "min": "min"}


def _updated(data, index, updates, reduction):
    if reduction == "mul":
        return multiply_at(data, index, updates)
    if reduction not in REDUCTIONS:
        raise Unsupported(
            f"a scatter that reduces by {reduction!r}",
            why=f"ONNX has mul, {', '.join(REDUCTIONS)}",
            do="export the model again",
        )
    return getattr(data.at[index], REDUCTIONS[reduction])(updates)


@lowers("ScatterElements")
def scatter_elements(data, indices, updates, axis, reduction):
    return _updated(data, _along(data, indices, axis), updates, reduction)


update(
    {
        "Scatter": lambda data, indices, updates, axis: scatter_elements(
            data, indices, updates, axis, "none"
        )
    }
)


@lowers("ScatterND")
def scatter_nd(data, indices, updates, reduction):
    return _updated(data, _tuple(data, indices), updates, reduction)
