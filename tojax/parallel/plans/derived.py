"""Tensor parallelism for a program that nobody wrote a plan for, by what its products feed.

Dimensions that are one (``same_dims``) are sharded together: the hidden features of an MLP in the
product that makes them and in the one that sums them up, the heads of an attention in queries,
keys, values and output. That is a column beside a row: one all-reduce, as in Megatron-LM (Shoeybi
et al., 2019, https://arxiv.org/abs/1909.08053).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from tojax.jaxprs import ClosedJaxpr
from tojax.parallel.plans.same_dims import SameDims

SMALL = 0.01  # of the largest parameter: less is not worth a collective


def dimensions(
    shapes: Mapping[str, Any], jaxpr: ClosedJaxpr, names: list[str], parts: int
) -> dict[str, int]:
    """Which dimension of each parameter to divide; what stays whole is left out.

    The sets of dimensions are taken in the order of bytes communicated for each byte of weights
    that is sharded, while most of their weights are not sharded yet.

    Args:
      shapes: arrays or their shapes, by name.
      jaxpr: the program; its first inputs are the parameters in the order of ``names``, the others
        the arrays of a call.
      parts: the number of devices along the mesh axis.
    """
    dims = SameDims(parts)
    given, _ = dims.read(jaxpr, len(names))
    members: dict[int, dict[str, int]] = defaultdict(dict)
    for name, numbers in zip(names, given):
        for i, number in enumerate(numbers):
            members[dims.root(number)].setdefault(name, i)
    costs: dict[int, int] = defaultdict(int)
    for number, moved in dims.costs:
        costs[dims.root(number)] += moved
    size = {k: math.prod(x.shape) * x.dtype.itemsize for k, x in shapes.items()}
    whole = {root: sum(size[k] for k in held) for root, held in members.items()}
    least = SMALL * max(size.values(), default=0)
    apart = {dims.root(d) for d in dims.whole}  # what one weight alone has, and needs whole
    roots = [r for r, held in members.items() if r not in apart or len(held) > 1]
    found: dict[str, int] = {}
    for root in sorted(roots, key=lambda r: costs[r] / max(whole[r], 1)):
        held = {
            k: i
            for k, i in members[root].items()
            if k not in found and shapes[k].shape[i] % parts == 0
        }
        left = sum(size[k] for k in held if len(shapes[k].shape) > 1)
        if left > least and 2 * left > whole[root]:
            found |= held
    return found


def experts(
    shapes: Mapping[str, Any], jaxpr: ClosedJaxpr, names: list[str], parts: int
) -> dict[str, int]:
    """Which dimension stacks the matrices of experts, for parameters of three or more that grouped
    or batched products take matrix by matrix. Arguments as for ``dimensions``.
    """
    dims = SameDims(parts)
    given, _ = dims.read(jaxpr, len(names))
    groups = {dims.root(d) for d in dims.groups}
    found: dict[str, int] = {}
    for name, numbers in zip(names, given):
        shape = shapes[name].shape
        places = [i for i, d in enumerate(numbers) if dims.root(d) in groups]
        if len(shape) > 2 and len(places) == 1 and shape[places[0]] % parts == 0:
            found[name] = places[0]
    return found
