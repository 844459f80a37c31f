"""Parts of a variable: reading rows and writing them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from anyjax.stablehlo.core.static_values import as_jax
from anyjax.tensorflow.core.running import HANDLERS, handles
from anyjax.tensorflow.ops import index
from anyjax.tensorflow.ops.index import batched, gather_nd
from anyjax.tensorflow.ops.shape import index_of_node
from anyjax.tensorflow.state.variables import reading, store, value_of


@handles("ResourceGather")
def gather(run, node, inputs):
    handle, indices = inputs
    return (batched(reading(run, handle), indices, 0, node.attr("batch_dims") or 0),)


@handles("ResourceGatherNd")
def gather_of_positions(run, node, inputs):
    handle, indices = inputs
    return (gather_nd(reading(run, handle), indices, ""),)


def rows(write: Callable[..., jax.Array]) -> Any:
    """Makes a handler that writes to rows; a scalar goes to each of them."""

    def handler(run, node, inputs):
        value, indices, updates = value_of(run, inputs[0]), *map(as_jax, inputs[1:])
        updates = jnp.broadcast_to(updates, (*indices.shape, *value.shape[1:]))
        return store(run, inputs[0], write(value, (indices,), updates))

    return handler


def positions(write: Callable[..., jax.Array]) -> Any:
    """Makes a handler that writes where the last axis of the indices says."""

    def handler(run, node, inputs):
        value, indices, updates = value_of(run, inputs[0]), *map(as_jax, inputs[1:])
        return store(run, inputs[0], index.nd(write)(value, indices, updates, ""))

    return handler


WRITES = {
    "Update": index.assign,
    "Add": index.add,
    "Sub": index.subtract,
    "Mul": index.multiply,
    "Div": index.divide,
    "Min": index.lowest,
    "Max": index.highest,
}
HANDLERS.update({f"ResourceScatter{name}": rows(write) for name, write in WRITES.items()})
HANDLERS.update(
    {f"ResourceScatterNd{x}": positions(WRITES[x]) for x in ("Update", "Add", "Sub", "Min", "Max")}
)


@handles("ResourceStridedSliceAssign")
def assign_slice(run, node, inputs):
    handle, *ends, value = inputs
    index = index_of_node(node, *map(run.entries, ends))
    return store(run, handle, value_of(run, handle).at[index].set(as_jax(value)))
