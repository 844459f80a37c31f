"""Dimensions that are the same throughout a program: heads, hidden features, vocabulary.

The program is read once, operator by operator. Both inner dimensions of a product are the same,
elementwise operators keep dimensions, a reshape keeps the slower of two that it splits or merges.
Each set of dimensions can be sharded on its own, at a known cost: an all-reduce of the result where
it is summed over, a gather where an operator or the caller needs it whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from tojax.jaxprs import ClosedJaxpr, Jaxpr, Literal, is_program, opened, scan_counts

Dims = tuple[int, ...]  # one number for each dimension of an array


class SameDims:
    """Sets of dimensions, by union-find.

    Attributes:
      shards: the number of devices that dimensions are divided over.
      costs: (dimension, bytes that are communicated if it is sharded).
      groups: dimensions that stack the operands of grouped and batched products.
      gathered: dimensions that would be gathered before use.
      call_dims: dimensions of arrays that depend on a call.

    Example:
      >>> import jax
      >>> jaxpr = jax.make_jaxpr(lambda a, b: (a @ b).T)(*jax.numpy.ones((2, 4, 4)))
      >>> dims = SameDims(2)
      >>> (a, b), out = dims.read_program(jaxpr)
      >>> dims.root(a[1]) == dims.root(b[0]), dims.root(out[0][0]) == dims.root(b[1])
      (True, True)
    """

    def __init__(self, shards: int):
        self.shards = shards
        self.parents: list[int] = []
        self.costs: list[tuple[int, int]] = []
        self.groups: list[int] = []
        self.gathered: list[int] = []
        self.call_dims: set[int] = set()

    def read_program(
        self, jaxpr: ClosedJaxpr, param_count: int | None = None
    ) -> tuple[list[Dims], list[Dims]]:
        """Reads a program; returns the dimensions of its inputs and outputs.

        The first ``param_count`` inputs are parameters, by default all.
        """
        in_dims = [self.new_dims(v.aval) for v in jaxpr.jaxpr.invars]
        if param_count is not None:
            self.call_dims.update(*in_dims[param_count:])
        out_dims = self.walk(jaxpr, in_dims)
        for dims, var in zip(out_dims, jaxpr.jaxpr.outvars):
            self.add_cost(dims, var.aval)
        return in_dims, out_dims

    def root(self, dim: int) -> int:
        """Returns the number that stands for the set of a dimension."""
        while self.parents[dim] != dim:
            self.parents[dim] = dim = self.parents[self.parents[dim]]
        return dim

    def new_dims(self, aval: Any) -> Dims:
        """Returns new dimensions for an array."""
        start, count = len(self.parents), len(getattr(aval, "shape", ()))
        self.parents += range(start, start + count)
        return tuple(range(start, start + count))

    def merge(self, a: Sequence[int], b: Sequence[int]) -> None:
        """Merges the sets of dimensions, pair by pair."""
        for x, y in zip(a, b, strict=True):
            self.parents[self.root(x)] = self.root(y)

    def add_cost(self, dims: Sequence[int], aval: Any, summed: bool = False) -> None:
        """Adds the cost of sharding any of these: a gather of the array, or an all-reduce."""
        size = math.prod(aval.shape) * aval.dtype.itemsize * (2 if summed else 1)
        self.costs += ((dim, size) for dim in dims)

    def walk(self, jaxpr: ClosedJaxpr | Jaxpr, in_dims: Sequence[Dims]) -> list[Dims]:
        """Reads a program with these inputs; returns the dimensions of its outputs."""
        jaxpr = opened(jaxpr)
        dims_of = {v: self.new_dims(v.aval) for v in jaxpr.constvars}
        dims_of |= dict(zip(jaxpr.invars, in_dims, strict=True))
        lookup = lambda v: self.new_dims(v.aval) if isinstance(v, Literal) else dims_of[v]
        for eqn in jaxpr.eqns:
            ins, outs = (
                [lookup(v) for v in eqn.invars],
                [self.new_dims(v.aval) for v in eqn.outvars],
            )
            RULES.get(eqn.primitive.name, inner_or_elementwise)(self, eqn, ins, outs)
            if self.call_dims.intersection(chain(*ins)):
                self.call_dims.update(*outs)
            dims_of |= dict(zip(eqn.outvars, outs))
        return [lookup(v) for v in jaxpr.outvars]


Rule = Callable[[SameDims, Any, list[Dims], list[Dims]], None]


def inner_or_elementwise(dims: SameDims, eqn: Any, ins: list[Dims], outs: list[Dims]) -> None:
    """Reads the program in an operator; without one, operands share dimensions with results."""
    programs = [x for x in eqn.params.values() if is_program(x)]
    inner_avals = [v.aval for x in programs for v in opened(x).invars]
    if [x.aval for x in eqn.invars] == inner_avals and len(programs) == 1:
        for inner_dims, out in zip(dims.walk(programs[0], ins), outs):
            dims.merge(inner_dims, out)
        return
    for out, var in zip(outs, eqn.outvars):
        for in_dims, x in zip(ins, eqn.invars):
            if len(in_dims) == len(out):
                sizes = zip(in_dims, out, x.aval.shape, var.aval.shape)
                pairs = [(a, b) for a, b, in_size, out_size in sizes if in_size == out_size]
                dims.merge(*zip(*pairs)) if pairs else None
    axis = eqn.params.get("axis", eqn.params.get("dimension"))
    if isinstance(axis, int) and ins and axis < len(ins[0]):
        dims.add_cost([ins[0][axis]], eqn.invars[0].aval)  # a cumulative sum, a sort


def reduce(dims: SameDims, eqn: Any, ins: list[Dims], outs: list[Dims]) -> None:
    """Adds the cost of an all-reduce of the result for reduced dimensions."""
    axes = eqn.params["axes"] if "axes" in eqn.params else eqn.params["dimensions"]
    for in_dims, out, var in zip(ins, outs, eqn.outvars):
        dims.merge([d for i, d in enumerate(in_dims) if i not in axes], out)
        dims.add_cost([in_dims[i] for i in axes], var.aval, summed=True)


def dot_general(dims: SameDims, eqn: Any, ins: list[Dims], outs: list[Dims]) -> None:
    """Merges contracted dimensions with each other, and all others with the result's."""
    (over_x, over_y), (batch_x, batch_y) = eqn.params["dimension_numbers"]
    x, y = ins
    dims.merge([x[i] for i in (*over_x, *batch_x)], [y[i] for i in (*over_y, *batch_y)])
    free_x = [d for i, d in enumerate(x) if i not in (*over_x, *batch_x)]
    free_y = [d for i, d in enumerate(y) if i not in (*over_y, *batch_y)]
    dims.merge([*(x[i] for i in batch_x), *free_x, *free_y], outs[0])
    dims.add_cost([x[i] for i in over_x], eqn.outvars[0].aval, summed=True)
    dims.groups += [y[i] for i in batch_y]


def ragged_dot(dims: SameDims, eqn: Any, ins: list[Dims], outs: list[Dims]) -> None:
    """Merges the groups of a grouped product: rows are multiplied by the matrix of their group.

    A device with some of the groups adds its own rows. Where rows are contracted, as in the
    gradient, each group gives a matrix.
    """
    numbers = eqn.params["ragged_dot_dimension_numbers"]
    (over_x, over_y), (batch_x, batch_y) = numbers.dot_dimension_numbers
    x, y, sizes, *_ = ins
    groups, ragged = numbers.rhs_group_dimensions, numbers.lhs_ragged_dimensions
    dims.merge([x[i] for i in (*over_x, *batch_x)], [y[i] for i in (*over_y, *batch_y)])
    free_x = [d for i, d in enumerate(x) if i not in (*over_x, *batch_x)]
    free_y = [d for i, d in enumerate(y) if i not in (*over_y, *batch_y, *groups)]
    group_dims = outs[0][:1] if {*ragged} & {*over_x} else ()  # of each group a matrix
    dims.merge([*(x[i] for i in batch_x), *free_x, *free_y], outs[0][len(group_dims) :])
    summed = [x[i] for i in over_x] + [y[i] for i in groups]
    dims.add_cost(summed, eqn.outvars[0].aval, summed=True)
    stacked = [*(y[i] for i in groups), *group_dims]
    dims.merge(stacked, [sizes[-1]] * len(stacked))
    dims.groups += stacked


def convolution(dims: SameDims, eqn: Any, ins: list[Dims], outs: list[Dims]) -> None:
    """Merges features as a product does; groups divide them as a reshape does."""
    numbers, groups = eqn.params["dimension_numbers"], eqn.params["feature_group_count"]
    (batch, features, *_), (out_features, in_features, *window), (rows, channels, *_) = numbers
    x, kernel = ins
    dims.gathered += [kernel[i] for i in window]
    dims.merge([x[batch], kernel[out_features]], [outs[0][rows], outs[0][channels]])
    if groups == 1:
        dims.merge([x[features]], [kernel[in_features]])
        dims.add_cost([x[features]], eqn.outvars[0].aval, summed=True)
    elif groups % dims.shards == 0:
        dims.merge([x[features]], [kernel[out_features]])
    else:
        dims.add_cost([x[features], kernel[out_features]], eqn.outvars[0].aval)


def reshape(dims: SameDims, eqn: Any, ins: list[Dims], outs: list[Dims]) -> None:
    """Merges the first of several dimensions with the one that they are reshaped to or from."""
    in_shape, out_shape = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
    for in_group, out_group in groups_of(in_shape, out_shape):
        a, b = (next((i for i in group if s[i] > 1), None) for group, s in
                ((in_group, in_shape), (out_group, out_shape)))  # fmt: skip
        if a is None or b is None:
            continue
        if in_shape[a] == out_shape[b] or not (
            in_shape[a] % dims.shards or out_shape[b] % dims.shards
        ):
            dims.merge([ins[0][a]], [outs[0][b]])
        else:
            dims.add_cost([ins[0][a], outs[0][b]], eqn.outvars[0].aval)


def groups_of(
    in_shape: Sequence[int], out_shape: Sequence[int]
) -> list[tuple[list[int], list[int]]]:
    """Returns groups of dimensions (before, after) with the same elements; none for empty arrays.

    Example:
      >>> groups_of((2, 3, 8), (6, 4, 2))
      [([0, 1], [0]), ([2], [1, 2])]
    """
    groups, i, j = [], 0, 0
    while i < len(in_shape) and j < len(out_shape) and 0 not in in_shape:
        in_group, out_group = [i], [j]
        x, y = in_shape[i], out_shape[j]
        while x != y:
            if x < y:
                i += 1
                x *= in_shape[i]
                in_group.append(i)
            else:
                j += 1
                y *= out_shape[j]
                out_group.append(j)
        groups.append((in_group, out_group))
        i, j = i + 1, j + 1
    return groups


def equal_sizes(dims: SameDims, eqn: Any, ins: list[Dims], outs: list[Dims]) -> None:
    """Merges dimensions of the same length; others cost communication if they are sharded."""
    for in_dims, x in zip(ins, eqn.invars):
        for out, var in zip(outs, eqn.outvars):
            if x.aval.ndim != var.aval.ndim:
                continue
            for i, (in_size, out_size) in enumerate(zip(x.aval.shape, var.aval.shape)):
                if in_size == out_size:
                    dims.merge([in_dims[i]], [out[i]])
                else:
                    dims.add_cost([in_dims[i], out[i]], var.aval)


def broadcast(dims: SameDims, eqn: Any, ins: list[Dims], outs: list[Dims]) -> None:
    """Merges the operand's dimensions with the result's; new dimensions stay on their own."""
    shape, new = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
    for i, place in enumerate(eqn.params["broadcast_dimensions"]):
        if shape[i] == new[place]:
            dims.merge([ins[0][i]], [outs[0][place]])


def gather(dims: SameDims, eqn: Any, ins: list[Dims], outs: list[Dims]) -> None:
    """Merges dimensions of a table and its rows; rows of a sharded table are an all-reduce."""
    numbers, sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
    collapsed = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    window = [i for i in range(len(ins[0])) if i not in collapsed]
    for i, place in zip(window, numbers.offset_dims):
        if sizes[i] == eqn.invars[0].aval.shape[i]:
            dims.merge([ins[0][i]], [outs[0][place]])
        else:
            dims.add_cost([ins[0][i]], eqn.outvars[0].aval)
    collapsed = numbers.collapsed_slice_dims
    dims.add_cost([ins[0][i] for i in collapsed], eqn.outvars[0].aval, summed=True)
    rows = math.prod(eqn.invars[0].aval.shape[i] for i in collapsed)
    reads_all_rows = math.prod(eqn.invars[1].aval.shape[:-1]) >= rows
    # the same rows in each call: a table of positions
    if reads_all_rows and dims.call_dims.isdisjoint(ins[1]):
        dims.gathered += [ins[0][i] for i in collapsed]
    batch = [d for i, d in enumerate(outs[0]) if i not in numbers.offset_dims]
    dims.merge(ins[1][: len(batch)], batch)


def scan(dims: SameDims, eqn: Any, ins: list[Dims], outs: list[Dims]) -> None:
    """Merges carries with themselves; steps are the first dimension of other inputs and outputs."""
    consts, carried = scan_counts(eqn)
    steps = [d[1:] for d in ins[consts + carried :]]
    result_dims = dims.walk(eqn.params["jaxpr"], [*ins[: consts + carried], *steps])
    for carry_in, carry_out, out in zip(ins[consts:], result_dims[:carried], outs):
        dims.merge(carry_in, carry_out)
        dims.merge(carry_out, out)
    for carry_out, out in zip(result_dims[carried:], outs[carried:]):
        dims.merge(carry_out, out[1:])


def while_loop(dims: SameDims, eqn: Any, ins: list[Dims], outs: list[Dims]) -> None:
    """Merges carries with themselves."""
    cond_consts, body_consts = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    carry = ins[cond_consts + body_consts :]
    dims.walk(eqn.params["cond_jaxpr"], [*ins[:cond_consts], *carry])
    for carry_in, carry_out, out in zip(
        carry, dims.walk(eqn.params["body_jaxpr"], ins[cond_consts:]), outs
    ):
        dims.merge(carry_in, carry_out)
        dims.merge(carry_out, out)


def cond(dims: SameDims, eqn: Any, ins: list[Dims], outs: list[Dims]) -> None:
    """Merges the outputs of all branches."""
    for branch in eqn.params["branches"]:
        for branch_dims, out in zip(dims.walk(branch, ins[1:]), outs):
            dims.merge(branch_dims, out)


def transpose(dims: SameDims, eqn: Any, ins: list[Dims], outs: list[Dims]) -> None:
    """Merges dimensions in the new order."""
    dims.merge([ins[0][i] for i in eqn.params["permutation"]], outs[0])


def squeeze(dims: SameDims, eqn: Any, ins: list[Dims], outs: list[Dims]) -> None:
    """Merges all dimensions that are not squeezed."""
    dims.merge([d for i, d in enumerate(ins[0]) if i not in eqn.params["dimensions"]], outs[0])


RULES: dict[str, Rule] = {
    **dict.fromkeys(("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "argmax", "argmin",
                     "reduce_and", "reduce_or", "reduce"), reduce),
    **dict.fromkeys(("slice", "dynamic_slice", "dynamic_update_slice", "pad", "concatenate",
                     "split"), equal_sizes),
    "dot_general": dot_general, "ragged_dot_general": ragged_dot,
    "conv_general_dilated": convolution, "reshape": reshape,
    "broadcast_in_dim": broadcast, "gather": gather, "transpose": transpose, "squeeze": squeeze,
    "scan": scan, "while": while_loop, "cond": cond,
}  # fmt: skip
