"""Masks that transformers make in a roundabout way, written plainly.

``mask[arange(n)[:, None], arange(m)]`` is ``mask`` with dimensions of size 1 put in, ``ones & x``
is ``x``, and positions that the module counts itself never belong to two texts in one row.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from anyjax.flax.codegen.graph.functionalize import packet
from anyjax.flax.codegen.python.sizes import symbolic

aten = torch.ops.aten
ALL = 2**63 - 1
ATTENTION = "aten.scaled_dot_product_attention"
AND = {"aten.__and__", "aten.bitwise_and", "aten.logical_and"}
VALUE_PRESERVING = {"aten.view", "aten.reshape", "aten.expand", "aten.unsqueeze", "aten.slice",
                    "aten.select", "aten.index", "aten.clone", "aten.to", "aten._to_copy",
                    "aten.squeeze"}  # fmt: skip
COMPARISONS = {"aten.eq": operator.eq, "aten.ne": operator.ne, "aten.lt": operator.lt,
          "aten.le": operator.le, "aten.gt": operator.gt, "aten.ge": operator.ge}  # fmt: skip
CONSTANT_FILLS = {"aten.ones": 1, "aten.new_ones": 1, "aten.zeros": 0, "aten.new_zeros": 0}


@dataclass
class MaskSimplifier:
    """A graph while its masks are simplified.

    Attributes:
      ranges: values that count along one dimension from 0, with that dimension.
      uniform: values that are one number everywhere, with that number.
      replaced: replacements by node.
    """

    graph: fx.Graph
    ranges: dict[fx.Node, int] = field(default_factory=dict)
    uniform: dict[fx.Node, Any] = field(default_factory=dict)
    replaced: dict[fx.Node, fx.Node] = field(default_factory=dict)

    def run(self) -> None:
        for node in list(self.graph.nodes):
            if node.op == "call_function" and isinstance(node.meta.get("val"), torch.Tensor):
                self.record(node)
                if (replacement := self.replacement(node)) is not None:
                    node.replace_all_uses_with(replacement)
                    self.replaced[node] = replacement
                    facts: dict[fx.Node, Any]
                    for facts in (self.ranges, self.uniform):
                        if node in facts:
                            facts.setdefault(replacement, facts[node])
                    self.graph.erase_node(node)
        for node in list(self.graph.nodes):
            if packet(node) in COMPARISONS:
                self.lower_rank(node)

    def record(self, node: fx.Node) -> None:
        """Records whether a value is a range or uniform."""
        name = packet(node)
        if name in CONSTANT_FILLS:
            self.uniform[node] = CONSTANT_FILLS[name]
        elif name == "aten.arange" and not (set(node.kwargs) & {"start", "step"}):
            if len(node.args) == 1 and not node.meta["val"].is_floating_point():
                self.ranges[node] = 0
        elif self._is_steps_of_one(node):
            self.uniform[node] = 1
        elif node.args and isinstance(first := node.args[0], fx.Node):
            if first in self.uniform:
                self._record_uniform(node, name, self.uniform[first])
            elif first in self.ranges:
                self._record_range(node, name, first)

    def _record_uniform(self, node: fx.Node, name: str, value: float) -> None:
        operand = node.args[1] if len(node.args) > 1 else None
        operand = self.uniform.get(operand) if isinstance(operand, fx.Node) else operand
        if name in VALUE_PRESERVING or (name == "aten.cumsum" and value == 0):
            boolean = node.meta["val"].dtype == torch.bool
            self.uniform[node] = bool(value) if boolean else value
        elif name in COMPARISONS and isinstance(operand, (bool, int)):
            self.uniform[node] = COMPARISONS[name](value, operand)
        elif name in AND and isinstance(operand, bool):
            self.uniform[node] = bool(value) and operand

    def _record_range(self, node: fx.Node, name: str, first: fx.Node) -> None:
        dim, rank = self.ranges[first], node.meta["val"].ndim
        if name == "aten.unsqueeze":
            self.ranges[node] = dim + (node.args[1] % rank <= dim)
        elif _is_full_slice(node) or (name == "aten.add" and node.args[1] == 0):
            self.ranges[node] = dim
        elif name == "aten.ge" and node.args[1] == 0:
            self.uniform[node] = True
        elif name == "aten.expand":
            sizes = node.meta["val"].shape, first.meta["val"].shape
            place = dim + len(sizes[0]) - len(sizes[1])
            if symbolic(sizes[0][place]) == symbolic(sizes[1][dim]):
                self.ranges[node] = place

    def _is_steps_of_one(self, node: fx.Node) -> bool:
        """Returns whether this is the difference of consecutive positions of a range: all ones."""
        if packet(node) != "aten.diff" or node.args[0] not in self.ranges:
            return False
        operands: list[Any] = [*node.args, *[None] * 4]
        x, n, dim, prepended = operands[:4]
        prepended = node.kwargs.get("prepend", prepended)
        dim = node.kwargs.get("dim", -1 if dim is None else dim) % x.meta["val"].ndim
        if n not in (None, 1) or dim != self.ranges[x] or not isinstance(prepended, fx.Node):
            return False
        first = prepended.args[0]
        is_first = isinstance(first, fx.Node) and packet(first) == "aten.slice"
        is_first = is_first and first.args == (x, dim, 0, 1)
        is_one_less = packet(prepended) == "aten.sub" and prepended.args[1:] == (1,)
        return is_first and is_one_less and not prepended.kwargs

    def replacement(self, node: fx.Node) -> fx.Node | None:
        """Returns a simpler node that may stand in a node's place."""
        name = packet(node)
        if name in AND:
            for ones, operand in (node.args[:2], node.args[1::-1]):
                is_redundant = lambda operand=operand: all(
                    _broadcasts_alike(u, node, operand) for u in node.users
                )
                if self.uniform.get(ones) and isinstance(operand, fx.Node) and is_redundant():
                    return operand
        is_identity = (name == "aten.add" and node.args[1] == 0) or _is_full_slice(node)
        if is_identity and _same_type(node.args[0], node):
            return node.args[0]
        if name == "aten.index":
            return self.without_full_indices(node)
        if name == ATTENTION:
            mask = [*node.args, None, None][3] or node.kwargs.get("attn_mask")
            if self.uniform.get(mask) is True:
                node.args = tuple(None if x is mask else x for x in node.args)
                node.kwargs = {k: None if x is mask else x for k, x in node.kwargs.items()}
        return None

    def without_full_indices(self, node: fx.Node) -> fx.Node | None:
        """Returns ``x`` for ``x[arange(n)[:, None], arange(m)]``, with new dimensions of size 1."""
        x, places = node.args
        shape = [symbolic(s) for s in x.meta["val"].shape]
        if len(places) != len(shape) or not all(p in self.ranges for p in places):
            return None
        rank = node.meta["val"].ndim
        dims = [self.ranges[p] + rank - p.meta["val"].ndim for p in places]
        counts = [symbolic(p.meta["val"].shape[self.ranges[p]]) for p in places]
        if dims != sorted(set(dims)):
            return None
        for i, (p, count) in enumerate(zip(places, counts)):
            if count != shape[i]:  # more of it would be an error in torch
                x = self.insert(aten.slice.Tensor, node, x, i, 0, _arange(p).args[0])
        for dim in range(rank):
            if dim not in dims:
                x = self.insert(aten.unsqueeze.default, node, x, dim)
        x.meta["val"] = node.meta["val"]
        return x

    def lower_rank(self, node: fx.Node) -> None:
        """Drops leading dimensions of 1 of a comparison of positions if its users broadcast."""
        rank = node.meta["val"].ndim
        if rank < 3 or not all(x in self.ranges for x in node.args):
            return
        places = [self.ranges[x] - x.meta["val"].ndim for x in node.args]
        other_operands = lambda u: [x for x in u.args if x is not node]
        attends = lambda u: packet(u) == ATTENTION and u.args[:3].count(node) == 0
        in_conjunction = lambda u: (
            packet(u) in AND and all(x.meta["val"].ndim == rank for x in other_operands(u))
        )
        fits = lambda u: in_conjunction(u) or attends(u)
        if min(places) < -2 or not all(fits(u) for u in node.users):
            return
        sides = [self._range_of_rank(x, -place, node) for x, place in zip(node.args, places)]
        lowered = self.insert(node.target, node, *sides)
        if any(map(attends, node.users)):  # which takes a mask for each text and head, or for all
            for _ in range(rank - 2):
                lowered = self.insert(aten.unsqueeze.default, node, lowered, 0)
        node.replace_all_uses_with(lowered)
        self.replaced[node] = lowered
        self.graph.erase_node(node)

    def _range_of_rank(self, x: fx.Node, rank: int, near: fx.Node) -> fx.Node:
        """Returns a range of this rank along its first dimension."""
        x = _arange(x)
        with self.graph.inserting_before(near):
            x = self.graph.node_copy(x)  # not the author's variable, which is short for it
        x.meta = dict(x.meta) | {"stack_trace": near.meta.get("stack_trace")}
        self.ranges[x] = 0
        if rank == 2:
            x = self.insert(aten.unsqueeze.default, near, x, 1)
        return x

    def insert(self, operator_: Callable, near: fx.Node, x: fx.Node, *args: Any) -> fx.Node:
        """Returns a new node, inserted before another."""
        with self.graph.inserting_before(near):
            node = self.graph.call_function(operator_, (x, *args))
        node.meta = dict(near.meta)
        node.meta["val"] = operator_(*fx.node.map_arg(node.args, lambda n: n.meta["val"]))
        self.record(node)
        return node


def _arange(node: fx.Node) -> fx.Node:
    """Returns the ``arange`` that a range over positions was made by."""
    while packet(node) != "aten.arange":
        node = node.args[0]
    return node


def _is_full_slice(node: fx.Node) -> bool:
    return packet(node) == "aten.slice" and (
        len(node.args) < 3 or (node.args[2] in (0, None) and node.args[3:4] in ((), (ALL,)))
    )


def _broadcasts_alike(user: fx.Node, mask: fx.Node, other: fx.Node) -> bool:
    """Returns whether ``user`` may read ``other``, which broadcasts, in place of ``mask``."""
    if _same_type(other, mask):
        return True
    if other.meta["val"].dtype != mask.meta["val"].dtype:
        return False
    if packet(user) == ATTENTION:
        return user.args[:3].count(mask) == 0
    if packet(user) not in AND | {"aten.where"}:
        return False
    read = [other if x is mask else x for x in user.all_input_nodes]
    shapes = [[*map(symbolic, x.meta["val"].shape)] for x in read]
    rank = user.meta["val"].ndim
    padded = [[1] * (rank - len(x)) + x for x in shapes]
    joined = [next((s for s in dims if s != 1), 1) for dims in zip(*padded)]
    return joined == [*map(symbolic, user.meta["val"].shape)]


def _same_type(one: fx.Node, other: fx.Node) -> bool:
    """Returns whether two values have the same dtype and sizes."""
    a, b = one.meta["val"], other.meta["val"]
    return a.dtype == b.dtype and [*map(symbolic, a.shape)] == [*map(symbolic, b.shape)]
