"""Which dimensions of a program's arrays are the same one: heads, hidden features, vocabulary.

The program is read once, operator by operator. A product's inner dimensions are one, elementwise
operators keep theirs, a reshape keeps the slower of the two that it splits or merges. What is left
apart is free to be sharded on its own, and what sharding it would cost is known: an all-reduce of
the result where it is summed over, a gather where an operator or the caller wants it whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from tojax.jaxprs import ClosedJaxpr, Jaxpr, Literal, is_program, opened, scan_counts

Dims = tuple[int, ...]  # one number for each dimension of an array


class SameDims:
    """Dimensions as sets that are merged; ``parts`` is what they shall be divided into.

    ``costs`` has (dimension, bytes that are communicated if it is sharded), ``groups`` the
    dimensions along which operands of grouped and batched products are stacked, ``whole`` those
    that would be gathered before they are used, ``moving`` those of arrays that a call decides.

    Example:
      >>> import jax
      >>> jaxpr = jax.make_jaxpr(lambda a, b: (a @ b).T)(*jax.numpy.ones((2, 4, 4)))
      >>> dims = SameDims(2)
      >>> (a, b), out = dims.read(jaxpr)
      >>> dims.root(a[1]) == dims.root(b[0]), dims.root(out[0][0]) == dims.root(b[1])
      (True, True)
    """

    def __init__(self, parts: int):
        self.parts = parts
        self.parents: list[int] = []
        self.costs: list[tuple[int, int]] = []
        self.groups: list[int] = []
        self.whole: list[int] = []
        self.moving: set[int] = set()

    def read(self, jaxpr: ClosedJaxpr, held: int | None = None) -> tuple[list[Dims], list[Dims]]:
        """The dimensions of the program's inputs and outputs; the first ``held`` inputs are
        parameters (all, if None).
        """
        given = [self.fresh(v.aval) for v in jaxpr.jaxpr.invars]
        if held is not None:
            self.moving.update(*given[held:])
        made = self.walk(jaxpr, given)
        for dims, var in zip(made, jaxpr.jaxpr.outvars):
            self.cost(dims, var.aval)
        return given, made

    def root(self, dim: int) -> int:
        """The number that all dimensions of one set share."""
        while self.parents[dim] != dim:
            self.parents[dim] = dim = self.parents[self.parents[dim]]
        return dim

    def fresh(self, aval: Any) -> Dims:
        """New dimensions for an array."""
        start, count = len(self.parents), len(getattr(aval, "shape", ()))
        self.parents += range(start, start + count)
        return tuple(range(start, start + count))

    def same(self, a: Sequence[int], b: Sequence[int]) -> None:
        """These are the same, pair by pair."""
        for x, y in zip(a, b, strict=True):
            self.parents[self.root(x)] = self.root(y)

    def cost(self, dims: Sequence[int], aval: Any, summed: bool = False) -> None:
        """Sharding any of these gathers an array; an all-reduce scatters it before."""
        size = math.prod(aval.shape) * aval.dtype.itemsize * (2 if summed else 1)
        self.costs += ((dim, size) for dim in dims)

    def walk(self, jaxpr: ClosedJaxpr | Jaxpr, given: Sequence[Dims]) -> list[Dims]:
        """The dimensions of the outputs of a program with these inputs."""
        jaxpr = opened(jaxpr)
        known = {v: self.fresh(v.aval) for v in jaxpr.constvars}
        known |= dict(zip(jaxpr.invars, given, strict=True))
        find = lambda v: self.fresh(v.aval) if isinstance(v, Literal) else known[v]
        for eqn in jaxpr.eqns:
            ins, outs = [find(v) for v in eqn.invars], [self.fresh(v.aval) for v in eqn.outvars]
            RULES.get(eqn.primitive.name, inner_or_elementwise)(self, eqn, ins, outs)
            if self.moving.intersection(chain(*ins)):
                self.moving.update(*outs)
            known |= dict(zip(eqn.outvars, outs))
        return [find(v) for v in jaxpr.outvars]


Rule = Callable[[SameDims, Any, list[Dims], list[Dims]], None]


def inner_or_elementwise(dims: SameDims, eqn: Any, ins: list[Dims], outs: list[Dims]) -> None:
    """A program inside of an operator; else what has the shape of a result has its dimensions."""
    inside = [x for x in eqn.params.values() if is_program(x)]
    taken = [v.aval for x in inside for v in opened(x).invars]
    if [x.aval for x in eqn.invars] == taken and len(inside) == 1:
        for found, out in zip(dims.walk(inside[0], ins), outs):
            dims.same(found, out)
        return
    for out, var in zip(outs, eqn.outvars):
        for given, x in zip(ins, eqn.invars):
            if len(given) == len(out):
                sizes = zip(given, out, x.aval.shape, var.aval.shape)
                pairs = [(a, b) for a, b, before, after in sizes if before == after]
                dims.same(*zip(*pairs)) if pairs else None
    axis = eqn.params.get("axis", eqn.params.get("dimension"))
    if isinstance(axis, int) and ins and axis < len(ins[0]):
        dims.cost([ins[0][axis]], eqn.invars[0].aval)  # a cumulative sum, a sort


def reduce(dims: SameDims, eqn: Any, ins: list[Dims], outs: list[Dims]) -> None:
    """The result is summed over the devices."""
    axes = eqn.params["axes"] if "axes" in eqn.params else eqn.params["dimensions"]
    for given, out, var in zip(ins, outs, eqn.outvars):
        dims.same([d for i, d in enumerate(given) if i not in axes], out)
        dims.cost([given[i] for i in axes], var.aval, summed=True)


def dot_general(dims: SameDims, eqn: Any, ins: list[Dims], outs: list[Dims]) -> None:
    """What is summed over is one dimension of both; all others are the result's."""
    (over_x, over_y), (batch_x, batch_y) = eqn.params["dimension_numbers"]
    x, y = ins
    dims.same([x[i] for i in (*over_x, *batch_x)], [y[i] for i in (*over_y, *batch_y)])
    free_x = [d for i, d in enumerate(x) if i not in (*over_x, *batch_x)]
    free_y = [d for i, d in enumerate(y) if i not in (*over_y, *batch_y)]
    dims.same([*(x[i] for i in batch_x), *free_x, *free_y], outs[0])
    dims.cost([x[i] for i in over_x], eqn.outvars[0].aval, summed=True)
    dims.groups += [y[i] for i in batch_y]


def ragged_dot(dims: SameDims, eqn: Any, ins: list[Dims], outs: list[Dims]) -> None:
    """Rows of one operand meet the matrix of their group: a device that has some of the groups adds
    its own rows. Where rows are summed over, as in the gradient, each group gives a matrix.
    """
    numbers = eqn.params["ragged_dot_dimension_numbers"]
    (over_x, over_y), (batch_x, batch_y) = numbers.dot_dimension_numbers
    x, y, sizes, *_ = ins
    groups, ragged = numbers.rhs_group_dimensions, numbers.lhs_ragged_dimensions
    dims.same([x[i] for i in (*over_x, *batch_x)], [y[i] for i in (*over_y, *batch_y)])
    free_x = [d for i, d in enumerate(x) if i not in (*over_x, *batch_x)]
    free_y = [d for i, d in enumerate(y) if i not in (*over_y, *batch_y, *groups)]
    made = outs[0][:1] if {*ragged} & {*over_x} else ()  # of each group a matrix
    dims.same([*(x[i] for i in batch_x), *free_x, *free_y], outs[0][len(made) :])
    summed = [x[i] for i in over_x] + [y[i] for i in groups]
    dims.cost(summed, eqn.outvars[0].aval, summed=True)
    stacked = [*(y[i] for i in groups), *made]
    dims.same(stacked, [sizes[-1]] * len(stacked))
    dims.groups += stacked


def convolution(dims: SameDims, eqn: Any, ins: list[Dims], outs: list[Dims]) -> None:
    """Features are dimensions like a product's; groups divide them as a reshape does."""
    numbers, groups = eqn.params["dimension_numbers"], eqn.params["feature_group_count"]
    (batch, features, *_), (made, taken, *window), (rows, channels, *_) = numbers
    x, kernel = ins
    dims.whole += [kernel[i] for i in window]
    dims.same([x[batch], kernel[made]], [outs[0][rows], outs[0][channels]])
    if groups == 1:
        dims.same([x[features]], [kernel[taken]])
        dims.cost([x[features]], eqn.outvars[0].aval, summed=True)
    elif groups % dims.parts == 0:
        dims.same([x[features]], [kernel[made]])
    else:
        dims.cost([x[features], kernel[made]], eqn.outvars[0].aval)


def reshape(dims: SameDims, eqn: Any, ins: list[Dims], outs: list[Dims]) -> None:
    """Of dimensions that are merged or split, the first one is sharded with the whole."""
    before, after = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
    for some, others in groups_of(before, after):
        a, b = (next((i for i in part if s[i] > 1), None) for part, s in
                ((some, before), (others, after)))  # fmt: skip
        if a is None or b is None:
            continue
        if before[a] == after[b] or not (before[a] % dims.parts or after[b] % dims.parts):
            dims.same([ins[0][a]], [outs[0][b]])
        else:
            dims.cost([ins[0][a], outs[0][b]], eqn.outvars[0].aval)


def groups_of(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """The dimensions before and after that have the same elements, in order; none of nothing.

    Example:
      >>> groups_of((2, 3, 8), (6, 4, 2))
      [([0, 1], [0]), ([2], [1, 2])]
    """
    found, i, j = [], 0, 0
    while i < len(before) and j < len(after) and 0 not in before:
        some, others = [i], [j]
        x, y = before[i], after[j]
        while x != y:
            if x < y:
                i += 1
                x *= before[i]
                some.append(i)
            else:
                j += 1
                y *= after[j]
                others.append(j)
        found.append((some, others))
        i, j = i + 1, j + 1
    return found


def kept(dims: SameDims, eqn: Any, ins: list[Dims], outs: list[Dims]) -> None:
    """Dimensions of the same length stay, a part of one is moved where that is sharded."""
    for given, x in zip(ins, eqn.invars):
        for out, var in zip(outs, eqn.outvars):
            if x.aval.ndim != var.aval.ndim:
                continue
            for i, (size, now) in enumerate(zip(x.aval.shape, var.aval.shape)):
                if size == now:
                    dims.same([given[i]], [out[i]])
                else:
                    dims.cost([given[i], out[i]], var.aval)


def broadcast(dims: SameDims, eqn: Any, ins: list[Dims], outs: list[Dims]) -> None:
    """New dimensions are nobody's."""
    shape, new = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
    for i, place in enumerate(eqn.params["broadcast_dimensions"]):
        if shape[i] == new[place]:
            dims.same([ins[0][i]], [outs[0][place]])


def gather(dims: SameDims, eqn: Any, ins: list[Dims], outs: list[Dims]) -> None:
    """An embedding: rows of a sharded table are a sum over the devices."""
    numbers, sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
    gone = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    left = [i for i in range(len(ins[0])) if i not in gone]
    for i, place in zip(left, numbers.offset_dims):
        if sizes[i] == eqn.invars[0].aval.shape[i]:
            dims.same([ins[0][i]], [outs[0][place]])
        else:
            dims.cost([ins[0][i]], eqn.outvars[0].aval)
    gone = numbers.collapsed_slice_dims
    dims.cost([ins[0][i] for i in gone], eqn.outvars[0].aval, summed=True)
    rows = math.prod(eqn.invars[0].aval.shape[i] for i in gone)
    every = math.prod(eqn.invars[1].aval.shape[:-1]) >= rows
    if every and dims.moving.isdisjoint(ins[1]):  # the same for each call: a table of positions
        dims.whole += [ins[0][i] for i in gone]
    batch = [d for i, d in enumerate(outs[0]) if i not in numbers.offset_dims]
    dims.same(ins[1][: len(batch)], batch)


def scan(dims: SameDims, eqn: Any, ins: list[Dims], outs: list[Dims]) -> None:
    """What is carried keeps its dimensions; steps are the first ones of what goes in and out."""
    consts, carried = scan_counts(eqn)
    steps = [d[1:] for d in ins[consts + carried :]]
    found = dims.walk(eqn.params["jaxpr"], [*ins[: consts + carried], *steps])
    for before, after, out in zip(ins[consts:], found[:carried], outs):
        dims.same(before, after)
        dims.same(after, out)
    for after, out in zip(found[carried:], outs[carried:]):
        dims.same(after, out[1:])


def while_loop(dims: SameDims, eqn: Any, ins: list[Dims], outs: list[Dims]) -> None:
    """What is carried keeps its dimensions."""
    asked, given = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    carry = ins[asked + given :]
    dims.walk(eqn.params["cond_jaxpr"], [*ins[:asked], *carry])
    for before, after, out in zip(carry, dims.walk(eqn.params["body_jaxpr"], ins[asked:]), outs):
        dims.same(before, after)
        dims.same(after, out)


def cond(dims: SameDims, eqn: Any, ins: list[Dims], outs: list[Dims]) -> None:
    """All branches make the same."""
    for branch in eqn.params["branches"]:
        for found, out in zip(dims.walk(branch, ins[1:]), outs):
            dims.same(found, out)


def transpose(dims: SameDims, eqn: Any, ins: list[Dims], outs: list[Dims]) -> None:
    """The same ones in another order."""
    dims.same([ins[0][i] for i in eqn.params["permutation"]], outs[0])


def squeeze(dims: SameDims, eqn: Any, ins: list[Dims], outs: list[Dims]) -> None:
    """All but those of length 1 that are left out."""
    dims.same([d for i, d in enumerate(ins[0]) if i not in eqn.params["dimensions"]], outs[0])


RULES: dict[str, Rule] = {
    **dict.fromkeys(("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "argmax", "argmin",
                     "reduce_and", "reduce_or", "reduce"), reduce),
    **dict.fromkeys(("slice", "dynamic_slice", "dynamic_update_slice", "pad", "concatenate",
                     "split"), kept),
    "dot_general": dot_general, "ragged_dot_general": ragged_dot,
    "conv_general_dilated": convolution, "reshape": reshape,
    "broadcast_in_dim": broadcast, "gather": gather, "transpose": transpose, "squeeze": squeeze,
    "scan": scan, "while": while_loop, "cond": cond,
}  # fmt: skip
