"""Shapes: making, joining and cutting arrays."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.stablehlo.core.schema import lowers, table

table.update(
    {
        "stablehlo.reshape": lambda result, x, /: lax.reshape(x, result.shape),
        "stablehlo.broadcast_in_dim": lambda result, x, at, /: lax.broadcast_in_dim(
            x, result.shape, at
        ),
        "stablehlo.broadcast": lambda x, sizes, /: lax.broadcast(x, sizes),
        "stablehlo.transpose": lambda x, axes, /: lax.transpose(x, axes),
        "stablehlo.concatenate": lambda xs, axis, /: lax.concatenate(xs, axis),
        "stablehlo.iota": lambda result, axis, /: lax.broadcasted_iota(
            result.dtype, result.shape, axis
        ),
        "stablehlo.slice": lambda x, start, stop, step, /: lax.slice(x, start, stop, step),
        "stablehlo.reverse": lambda x, axes, /: lax.rev(x, axes),
        "stablehlo.pad": lambda x, value, low, high, inside, /: lax.pad(
            x, value, list(zip(low, high, inside))
        ),
        "stablehlo.dynamic_slice": lambda x, start, sizes, /: lax.dynamic_slice(x, start, sizes),
        "stablehlo.dynamic_update_slice": lambda x, new, start, /: lax.dynamic_update_slice(
            x, new, start
        ),
        "stablehlo.tuple": lambda values, /: (tuple(values),),
        "stablehlo.get_tuple_element": lambda value, index, /: (value[index],),
        "stablehlo.after_all": lambda tokens, /: None,
        "stablehlo.create_token": lambda: None,
        "stablehlo.replica_id": lambda: jnp.uint32(0),
        "stablehlo.partition_id": lambda: jnp.uint32(0),
    }
)


@lowers("stablehlo.get_dimension_size")
def get_dimension_size(operand, dimension):
    size = operand.shape[dimension]
    return np.array(size, np.int32 if isinstance(size, int) else object)
