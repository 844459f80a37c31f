"""What a graph says of positions in a roundabout way, said plainly.

Masks are made from ranges over all positions: ``mask[arange(n)[:, None], arange(m)]`` is ``mask``
with dimensions of size 1 put in, ``ones & x`` is ``x``, and positions that the module itself counts
are never those of two texts in one row.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from tojax.flax.codegen.graph.functionalize import packet
from tojax.flax.codegen.python.sizes import symbolic

aten = torch.ops.aten
ALL = 2**63 - 1
ATTENTION = "aten.scaled_dot_product_attention"
AND = {"aten.__and__", "aten.bitwise_and", "aten.logical_and"}
KEEPS = {"aten.view", "aten.reshape", "aten.expand", "aten.unsqueeze", "aten.slice", "aten.select",
         "aten.index", "aten.clone", "aten.to", "aten._to_copy", "aten.squeeze"}  # fmt: skip
EQUALS = {"aten.eq": operator.eq, "aten.ne": operator.ne, "aten.lt": operator.lt,
          "aten.le": operator.le, "aten.gt": operator.gt, "aten.ge": operator.ge}  # fmt: skip
FILLED = {"aten.ones": 1, "aten.new_ones": 1, "aten.zeros": 0, "aten.new_zeros": 0}


@dataclass
class Plain:
    """A graph while it is made plain.

    Attributes:
      ranges: values that count along one dimension from 0, with that dimension.
      uniform: values that are one number everywhere.
      replaced: nodes that others stand for.
    """

    graph: fx.Graph
    ranges: dict[fx.Node, int] = field(default_factory=dict)
    uniform: dict[fx.Node, Any] = field(default_factory=dict)
    replaced: dict[fx.Node, fx.Node] = field(default_factory=dict)

    def run(self) -> None:
        for node in list(self.graph.nodes):
            if node.op == "call_function" and isinstance(node.meta.get("val"), torch.Tensor):
                self.note(node)
                if (other := self.plainer(node)) is not None:
                    node.replace_all_uses_with(other)
                    self.replaced[node] = other
                    known: dict[fx.Node, Any]
                    for known in (self.ranges, self.uniform):
                        if node in known:
                            known.setdefault(other, known[node])
                    self.graph.erase_node(node)
        for node in list(self.graph.nodes):
            if packet(node) in EQUALS:
                self.lower(node)

    def note(self, node: fx.Node) -> None:
        """What is known of a value."""
        name = packet(node)
        if name in FILLED:
            self.uniform[node] = FILLED[name]
        elif name == "aten.arange" and not (set(node.kwargs) & {"start", "step"}):
            if len(node.args) == 1 and not node.meta["val"].is_floating_point():
                self.ranges[node] = 0
        elif self._steps_of_one(node):
            self.uniform[node] = 1
        elif (first := self._first(node)) is None:
            return
        elif first in self.uniform:
            self._uniform(node, name, self.uniform[first])
        elif first in self.ranges:
            self._range(node, name, first)

    def _first(self, node: fx.Node) -> fx.Node | None:
        return node.args[0] if node.args and isinstance(node.args[0], fx.Node) else None

    def _uniform(self, node: fx.Node, name: str, value: Any) -> None:
        other = node.args[1] if len(node.args) > 1 else None
        other = self.uniform.get(other) if isinstance(other, fx.Node) else other
        if name in KEEPS or (name == "aten.cumsum" and value == 0):
            boolean = node.meta["val"].dtype == torch.bool
            self.uniform[node] = bool(value) if boolean else value
        elif name in EQUALS and isinstance(other, (bool, int)):
            self.uniform[node] = EQUALS[name](value, other)
        elif name in AND and isinstance(other, bool):
            self.uniform[node] = bool(value) and other

    def _range(self, node: fx.Node, name: str, first: fx.Node) -> None:
        dim, rank = self.ranges[first], node.meta["val"].ndim
        if name == "aten.unsqueeze":
            self.ranges[node] = dim + (node.args[1] % rank <= dim)
        elif _whole_slice(node) or (name == "aten.add" and node.args[1] == 0):
            self.ranges[node] = dim
        elif name == "aten.ge" and node.args[1] == 0:
            self.uniform[node] = True
        elif name == "aten.expand":
            sizes = node.meta["val"].shape, first.meta["val"].shape
            place = dim + len(sizes[0]) - len(sizes[1])
            if symbolic(sizes[0][place]) == symbolic(sizes[1][dim]):
                self.ranges[node] = place

    def _steps_of_one(self, node: Any) -> bool:
        """Whether this is the differences of a range, with one before its first put in front."""
        if packet(node) != "aten.diff" or node.args[0] not in self.ranges:
            return False
        given: list[Any] = [*node.args, *[None] * 4]
        x, n, dim, before = given[:4]
        before = node.kwargs.get("prepend", before)
        dim = node.kwargs.get("dim", -1 if dim is None else dim) % x.meta["val"].ndim
        if n not in (None, 1) or dim != self.ranges[x] or not isinstance(before, fx.Node):
            return False
        cut = before.args[0]
        less = packet(before) == "aten.sub" and before.args[1] == 1 and not before.kwargs
        return less and _is(cut, "aten.slice", x, dim, 0, 1)

    def plainer(self, node: fx.Node) -> fx.Node | None:
        """What may stand in a node's place."""
        name = packet(node)
        if name in AND:
            for one, other in (node.args[:2], node.args[1::-1]):
                does = lambda other=other: all(_same_with(u, node, other) for u in node.users)
                if self.uniform.get(one) and isinstance(other, fx.Node) and does():
                    return other
        nothing = (name == "aten.add" and node.args[1] == 0) or _whole_slice(node)
        if nothing and _like(node.args[0], node):
            return node.args[0]
        if name == "aten.index":
            return self.picked(node)
        if name == ATTENTION:
            mask = [*node.args, None, None][3] or node.kwargs.get("attn_mask")
            if self.uniform.get(mask) is True:
                node.args = tuple(None if x is mask else x for x in node.args)
                node.kwargs = {k: None if x is mask else x for k, x in node.kwargs.items()}
        return None

    def picked(self, node: fx.Node) -> fx.Node | None:
        """``x[arange(n)[:, None], arange(m)]``: all of ``x``, dimensions of size 1 put in."""
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
                x = self.made(aten.slice.Tensor, node, x, i, 0, _arange(p).args[0])
        for dim in range(rank):
            if dim not in dims:
                x = self.made(aten.unsqueeze.default, node, x, dim)
        x.meta["val"] = node.meta["val"]
        return x

    def lower(self, node: fx.Node) -> None:
        """Comparisons of positions without leading dimensions of size 1, where others have them."""
        rank = node.meta["val"].ndim
        if rank < 3 or not all(x in self.ranges for x in node.args):
            return
        places = [self.ranges[x] - x.meta["val"].ndim for x in node.args]
        apart = lambda u: [x for x in u.args if x is not node]
        attends = lambda u: packet(u) == ATTENTION and u.args[:3].count(node) == 0
        among = lambda u: packet(u) in AND and all(x.meta["val"].ndim == rank for x in apart(u))
        fits = lambda u: among(u) or attends(u)
        if min(places) < -2 or not all(fits(u) for u in node.users):
            return
        sides = [self._counted(x, -place, node) for x, place in zip(node.args, places)]
        low = self.made(node.target, node, *sides)
        if any(map(attends, node.users)):  # which takes a mask for each text and head, or for all
            for _ in range(rank - 2):
                low = self.made(aten.unsqueeze.default, node, low, 0)
        node.replace_all_uses_with(low)
        self.replaced[node] = low
        self.graph.erase_node(node)

    def _counted(self, x: Any, rank: int, near: fx.Node) -> fx.Node:
        """A range of this rank along its first dimension."""
        x = _arange(x)
        with self.graph.inserting_before(near):
            x = self.graph.node_copy(x)  # not the author's variable, which is short for it
        x.meta = dict(x.meta) | {"stack_trace": near.meta.get("stack_trace")}
        self.ranges[x] = 0
        if rank == 2:
            x = self.made(aten.unsqueeze.default, near, x, 1)
        return x

    def made(self, operator_: Any, near: fx.Node, x: fx.Node, *args: Any) -> fx.Node:
        """A new node where another stands."""
        with self.graph.inserting_before(near):
            node = self.graph.call_function(operator_, (x, *args))
        node.meta = dict(near.meta)
        node.meta["val"] = operator_(*fx.node.map_arg(node.args, lambda n: n.meta["val"]))
        self.note(node)
        return node


def _arange(node: Any) -> fx.Node:
    """What a range over positions was made by."""
    while packet(node) != "aten.arange":
        node = node.args[0]
    return node


def _whole_slice(node: fx.Node) -> bool:
    return packet(node) == "aten.slice" and (
        len(node.args) < 3 or (node.args[2] in (0, None) and node.args[3:4] in ((), (ALL,)))
    )


def _is(node: Any, name: str, *args: Any) -> bool:
    return isinstance(node, fx.Node) and packet(node) == name and tuple(node.args) == args


def _same_with(user: fx.Node, mask: fx.Node, other: fx.Node) -> bool:
    """Whether a value stays as it is if it reads a mask that broadcasts to the one it reads."""
    if _like(other, mask):
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


def _like(one: fx.Node, other: fx.Node) -> bool:
    """Whether two values have the same dtype and sizes."""
    a, b = one.meta["val"], other.meta["val"]
    return a.dtype == b.dtype and [*map(symbolic, a.shape)] == [*map(symbolic, b.shape)]
