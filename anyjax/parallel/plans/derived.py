"""Tensor parallelism for a program without a plan, derived from the flow between its products.

Dimensions that are the same (``same_dims``) are sharded together: the hidden features of an MLP in
both of its products, the heads of an attention in queries, keys, values and output. So columns of
one product meet rows of the next, with a single all-reduce, as in Megatron-LM (Shoeybi et al.,
2019, https://arxiv.org/abs/1909.08053).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from anyjax.jaxprs import ClosedJaxpr
from anyjax.parallel.plans.same_dims import SameDims

SMALL = 0.01  # of the largest parameter: less is not worth a collective


def dimensions(
    shapes: Mapping[str, Any], jaxpr: ClosedJaxpr, names: list[str], shards: int
) -> dict[str, int]:
    """Returns the dimension to divide of each parameter; parameters that stay whole are left out.

    Sets of dimensions are tried in the order of bytes communicated per byte of weights sharded. A
    set is divided if most of its weights are not divided yet.

    Args:
      shapes: arrays or their shapes, by name.
      jaxpr: the program; its first inputs are the parameters in the order of ``names``, the others
        the arrays of a call.
      names: the parameters.
      shards: the number of devices along the mesh axis.
    """
    dims = SameDims(shards)
    input_dims, _ = dims.read_program(jaxpr, len(names))
    members: dict[int, dict[str, int]] = defaultdict(dict)
    for name, numbers in zip(names, input_dims):
        for i, number in enumerate(numbers):
            members[dims.root(number)].setdefault(name, i)
    costs: dict[int, int] = defaultdict(int)
    for number, communicated in dims.costs:
        costs[dims.root(number)] += communicated
    size = {k: math.prod(x.shape) * x.dtype.itemsize for k, x in shapes.items()}
    total_size = {root: sum(size[k] for k in weights) for root, weights in members.items()}
    min_size = SMALL * max(size.values(), default=0)
    gathered = {dims.root(d) for d in dims.gathered}  # not divided if only one weight has them
    roots = [r for r, weights in members.items() if r not in gathered or len(weights) > 1]
    divided: dict[str, int] = {}
    for root in sorted(roots, key=lambda r: costs[r] / max(total_size[r], 1)):
        weights = {
            k: i
            for k, i in members[root].items()
            if k not in divided and shapes[k].shape[i] % shards == 0
        }
        new_size = sum(size[k] for k in weights if len(shapes[k].shape) > 1)
        if new_size > min_size and 2 * new_size > total_size[root]:
            divided |= weights
    return divided


def experts(
    shapes: Mapping[str, Any], jaxpr: ClosedJaxpr, names: list[str], shards: int
) -> dict[str, int]:
    """Returns the dimension that stacks the matrices of experts.

    Such parameters have three dimensions or more, and grouped or batched products use them matrix
    by matrix. Arguments as for ``dimensions``.
    """
    dims = SameDims(shards)
    input_dims, _ = dims.read_program(jaxpr, len(names))
    groups = {dims.root(d) for d in dims.groups}
    divided: dict[str, int] = {}
    for name, numbers in zip(names, input_dims):
        shape = shapes[name].shape
        stacked = [i for i, d in enumerate(numbers) if dims.root(d) in groups]
        if len(shape) > 2 and len(stacked) == 1 and shape[stacked[0]] % shards == 0:
            divided[name] = stacked[0]
    return divided
