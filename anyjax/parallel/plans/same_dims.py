"""Dimensions that are the same throughout a program: heads, hidden features, vocabulary.

The program is read once, operation by operation, by ``sharding_rules``. Each set of dimensions can
be sharded on its own, at a known cost: an all-reduce of the result where it is reduced, a gather
where an operation or the caller needs it whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from anyjax.jaxprs import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, called, opened, scan_counts
from anyjax.parallel.plans.sharding_rules import Factor, Shape, equal_sizes, sharding_rule

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

    def walk(self, program: ClosedJaxpr | Jaxpr, in_dims: Sequence[Dims]) -> list[Dims]:
        """Reads a program with these inputs; returns the dimensions of its outputs."""
        jaxpr = opened(program)
        dims_of = {v: self.new_dims(v.aval) for v in jaxpr.constvars}
        dims_of |= dict(zip(jaxpr.invars, in_dims, strict=True))
        lookup = lambda v: self.new_dims(v.aval) if isinstance(v, Literal) else dims_of[v]
        for eqn in jaxpr.eqns:
            ins = [lookup(v) for v in eqn.invars]
            outs = [self.new_dims(v.aval) for v in eqn.outvars]
            if (inner := called(eqn)) is not None:
                for inner_dims, out in zip(self.walk(inner, ins), outs):
                    self.merge(inner_dims, out)
            elif eqn.primitive.name in LOOPS:
                LOOPS[eqn.primitive.name](self, eqn, ins, outs)
            else:
                self.read_operation(eqn, ins, outs)
            if self.call_dims.intersection(chain(*ins)):
                self.call_dims.update(*outs)
            dims_of |= dict(zip(eqn.outvars, outs))
        return [lookup(v) for v in jaxpr.outvars]

    def read_operation(self, eqn: JaxprEqn, ins: list[Dims], outs: list[Dims]) -> None:
        """Merges dimensions of the same factor, and adds the costs of sharding each.

        Results are all-reduced over factors that they do not have. Dimensions that need to be
        replicated, or that are permuted, are gathered.
        """
        name = eqn.primitive.name
        in_shapes, out_shapes = ([*map(_shape, vs)] for vs in (eqn.invars, eqn.outvars))
        rule = sharding_rule(name, eqn.params, in_shapes, out_shapes)
        if not rule.is_known and outs:
            rule = equal_sizes(eqn.params, in_shapes, out_shapes)
        first: dict[Factor, tuple[int, int]] = {}  # by factor
        gathered: list[int] = []
        for factors, dims, shape in zip(
            [*rule.operands, *rule.results], [*ins, *outs], [*in_shapes, *out_shapes]
        ):
            for factor, dim, size in zip(factors, dims, shape):
                if factor is None and name in UNCOUNTED:
                    continue
                if factor is None or factor == rule.permuted:
                    gathered.append(dim)
                    continue
                same, same_size = first.setdefault(factor, (dim, size))
                if size == same_size or not (size % self.shards or same_size % self.shards):
                    self.parents[self.root(dim)] = self.root(same)
                else:
                    gathered += dim, same
        remaining = {*chain(*rule.results)}
        reduced = [dim for factor, (dim, _) in first.items() if factor not in remaining]
        for v in eqn.outvars if gathered or reduced else ():
            self.add_cost(gathered, v.aval)
            self.add_cost(reduced, v.aval, summed=True)
        if name in FURTHER:
            FURTHER[name](self, eqn, ins, outs)


def _shape(v: Var | Literal) -> Shape:
    aval: Any = v.aval  # a token has no shape
    return getattr(aval, "shape", ())


# Faster dimensions than the one that a reshape splits or merges, and positions of a convolution:
# no set of weights is larger by them.
UNCOUNTED = {"reshape", "conv_general_dilated"}
Rule = Callable[[SameDims, JaxprEqn, list[Dims], list[Dims]], None]


def add_batch(dims: SameDims, eqn: JaxprEqn, ins: list[Dims], outs: list[Dims]) -> None:
    """Adds the dimension that stacks the matrices of a batched product."""
    _, (_, batch) = eqn.params["dimension_numbers"]
    dims.groups += [ins[1][i] for i in batch]


def add_groups(dims: SameDims, eqn: JaxprEqn, ins: list[Dims], outs: list[Dims]) -> None:
    """Adds the dimension that stacks the matrices of a grouped product, or of its gradient."""
    groups = eqn.params["ragged_dot_dimension_numbers"].rhs_group_dimensions
    stacked = [ins[1][i] for i in groups] or [*outs[0][:1]]
    dims.merge(stacked, [ins[2][-1]] * len(stacked))
    dims.groups += stacked


def add_windows(dims: SameDims, eqn: JaxprEqn, ins: list[Dims], outs: list[Dims]) -> None:
    """Adds the windows of a convolution, and the cost of features that are gathered: those of
    groups of several, see `anyjax.numerics.convolution`, and of fewer of one than shards.
    """
    (_, features, *_), (out_features, in_features, *window), _ = eqn.params["dimension_numbers"]
    dims.gathered += [ins[1][i] for i in window]
    groups = eqn.params["feature_group_count"]
    kernel = _shape(eqn.invars[1])
    depthwise = groups == kernel[out_features] and kernel[in_features] == 1
    if groups > 1 and (groups % dims.shards or not depthwise):
        dims.add_cost([ins[0][features], ins[1][out_features]], eqn.outvars[0].aval)


def add_table(dims: SameDims, eqn: JaxprEqn, ins: list[Dims], outs: list[Dims]) -> None:
    """Adds a table of which each call reads the same rows, and all: one of positions."""
    collapsed = eqn.params["dimension_numbers"].collapsed_slice_dims
    table, rows = map(_shape, eqn.invars)
    reads_all_rows = math.prod(rows[:-1]) >= math.prod(table[i] for i in collapsed)
    if reads_all_rows and dims.call_dims.isdisjoint(ins[1]):
        dims.gathered += [ins[0][i] for i in collapsed]


FURTHER: dict[str, Rule] = {
    "dot_general": add_batch,
    "ragged_dot_general": add_groups,
    "conv_general_dilated": add_windows,
    "gather": add_table,
}


def scan(dims: SameDims, eqn: JaxprEqn, ins: list[Dims], outs: list[Dims]) -> None:
    """Merges carries with themselves; steps are the first dimension of other inputs and outputs."""
    consts, carried = scan_counts(eqn)
    steps = [d[1:] for d in ins[consts + carried :]]
    result_dims = dims.walk(eqn.params["jaxpr"], [*ins[: consts + carried], *steps])
    for carry_in, carry_out, out in zip(ins[consts:], result_dims[:carried], outs):
        dims.merge(carry_in, carry_out)
        dims.merge(carry_out, out)
    for carry_out, out in zip(result_dims[carried:], outs[carried:]):
        dims.merge(carry_out, out[1:])


def while_loop(dims: SameDims, eqn: JaxprEqn, ins: list[Dims], outs: list[Dims]) -> None:
    """Merges carries with themselves."""
    cond_consts, body_consts = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    carry = ins[cond_consts + body_consts :]
    dims.walk(eqn.params["cond_jaxpr"], [*ins[:cond_consts], *carry])
    for carry_in, carry_out, out in zip(
        carry, dims.walk(eqn.params["body_jaxpr"], ins[cond_consts:]), outs
    ):
        dims.merge(carry_in, carry_out)
        dims.merge(carry_out, out)


def cond(dims: SameDims, eqn: JaxprEqn, ins: list[Dims], outs: list[Dims]) -> None:
    """Merges the outputs of all branches."""
    for branch in eqn.params["branches"]:
        for branch_dims, out in zip(dims.walk(branch, ins[1:]), outs):
            dims.merge(branch_dims, out)


LOOPS: dict[str, Rule] = {"scan": scan, "while": while_loop, "cond": cond}
