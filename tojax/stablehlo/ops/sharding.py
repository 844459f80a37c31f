"""Shardy's dialect: the placement of arrays on devices, which is trivial on one device."""

from __future__ import annotations

from tojax.errors import Unsupported
from tojax.stablehlo.core.schema import lowers, table

table.update(
    {
        "sdy.sharding_constraint": lambda x, sharding, /: x,
        "sdy.reshard": lambda x, sharding, /: x,
        "sdy.propagation_barrier": lambda x, direction, /: x,
        "sdy.sharding_group": lambda x, group, /: [],
        "sdy.all_gather": lambda x, axes, sharding, /: x,
        "sdy.all_reduce": lambda x, axes, sharding, reduction=None, /: x,
    }
)


@lowers("sdy.named_computation")
def named_computation(result, name, operands, in_shardings, out_shardings, body, /):
    return body(*operands)


@lowers("sdy.manual_computation")
def manual_computation(tensors, in_shardings, out_shardings, axes, body, /):
    """The body takes one device's shard of each array."""
    for x, kind in zip(tensors, body.region.types):
        if tuple(x.shape) != tuple(kind.shape):
            raise Unsupported(
                "a computation on the parts of several devices",
                why=f"it takes {list(kind.shape)} of an array of {list(x.shape)}",
                do="export the function for one device",
            )
    return body(*tensors)
