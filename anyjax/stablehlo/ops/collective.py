"""Operations among devices, in a program for one device: the only one of its group. Shardy's
dialect places arrays on devices, which is trivial on one device.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from anyjax.errors import Unsupported
from anyjax.stablehlo.core.schema import lowers, table


def check_single(groups, name):
    """Raises Unsupported if a group has several devices."""
    if isinstance(groups, np.ndarray) and (groups.size == 0 or groups.shape[-1] == 1):
        return
    raise Unsupported(
        f"{name} among several devices",
        why=f"its groups are {np.asarray(groups).tolist()}, and the module is run as one device's",
        do="export the program for one device",
    )


@lowers("stablehlo.all_reduce")
def all_reduce(result, operands, groups, channel, ids, computation, /):
    check_single(groups, "all_reduce")
    return operands


@lowers("stablehlo.all_gather")
def all_gather(result, operands, axis, groups, channel, ids, /):
    check_single(groups, "all_gather")
    return operands


@lowers("stablehlo.all_to_all")
def all_to_all(operands, split, concat, count, groups, channel, /):
    check_single(groups, "all_to_all")
    return operands


@lowers("stablehlo.reduce_scatter")
def reduce_scatter(result, operand, axis, groups, channel, ids, computation, /):
    check_single(groups, "reduce_scatter")
    return operand


@lowers("stablehlo.collective_broadcast")
def collective_broadcast(operand, groups, channel, has_dynamic_root=False, /):
    check_single(groups, "collective_broadcast")
    return operand[:-1] if has_dynamic_root else operand


@lowers("stablehlo.collective_reduce")
def collective_reduce(result, operands, groups, channel, ids, has_dynamic_root, computation, /):
    check_single(groups, "collective_reduce")
    return operands[:-1] if has_dynamic_root else operands


@lowers("stablehlo.cross-replica-sum")
def cross_replica_sum(operand, groups, /):
    check_single(groups, "cross-replica-sum")
    return operand


@lowers("stablehlo.collective_permute")
def collective_permute(operand, source_target_pairs, channel, /):
    """Returns zeros on a device that receives nothing."""
    pairs = np.asarray(source_target_pairs)
    check_single(pairs[pairs.any(-1)], "collective_permute")  # all but from 0 to 0
    return operand if pairs.size else jnp.zeros_like(operand)


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
