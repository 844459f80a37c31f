"""Switch and Merge outside of loops as If nodes.

A value that depends on a Switch exists only for one outcome of its predicate. A Merge of two
values whose outcomes are opposite becomes an output of an If; those that one ``tf.cond`` made share
it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import tensorflow as tf

from tojax.errors import Unsupported
from tojax.tensorflow.core.nodes import Edge, Node, Part, bare

Outcomes = dict[Edge, bool]  # predicates and what they have to be for a value to exist


@dataclass
class _Join:
    """Merges of one predicate; ``before`` are the joins that it depends on."""

    predicate: Edge
    outcomes: Outcomes
    merges: list[Node] = field(default_factory=list)
    before: set[int] = field(default_factory=set)
    done: bool = False


class Joins:
    """The branches of nodes in their order."""

    def __init__(self, nodes: Iterable[Node]):
        self.by_name = {node.name: node for node in nodes}
        self.outcomes: dict[str, Outcomes] = {}
        self.joins: list[_Join] = []
        self.needs: dict[str, set[int]] = {}  # which joins a node depends on
        self.indexed = {e.node for n in self.by_name.values() for e in n.inputs if e.output == 1}
        for node in list(self.by_name.values()):
            self._look(node)

    def nodes(self) -> dict[str, Node]:
        """All nodes by name, with an If for every join."""
        for i in range(len(self.joins)):
            self._build(i)
        return self.by_name

    def _of(self, edge: Edge) -> Outcomes:
        """When the value of an edge exists."""
        node = self.by_name.get(edge.node)
        found = self.outcomes.get(edge.node, {})
        if node is None or node.op != "Switch":
            return found
        return {**found, self.plain(node.inputs[1]): edge.output == 1}

    def plain(self, edge: Edge) -> Edge:
        """What an edge is without Identity nodes."""
        while edge.node in self.by_name and self.by_name[edge.node].op == "Identity":
            edge = self.by_name[edge.node].inputs[0]
        return edge

    def _look(self, node: Node) -> None:
        """When a node exists, and of which join it is if it is a Merge."""
        before = (*(e.node for e in node.inputs), *node.controls)
        needs = {i for x in before for i in self.needs.get(x, ())}
        if node.op == "Merge":
            self._join(node, needs)
            return
        found: Outcomes = {}
        for edge in node.inputs:
            found |= self._of(edge)
        for name in node.controls:
            found |= self.outcomes.get(name, {})
        self.outcomes[node.name], self.needs[node.name] = found, needs

    def _join(self, node: Node, needs: set[int]) -> None:
        sides = [self._of(e) for e in node.inputs]
        opposite = [p for p, x in sides[0].items() if all(s.get(p) is (not x) for s in sides[1:])]
        if len(sides) != 2 or not opposite:
            raise Unsupported(
                "a Merge of values that are not those of two branches",
                where=f"node {node.name!r}",
                why="no predicate decides which of them exists",
                do="build the graph with tf.cond",
            )
        predicate = opposite[-1]
        found = {p: x for s in sides for p, x in s.items() if p != predicate}
        all_needs = self._closure(needs)
        for i, join in enumerate(self.joins):
            same = join.predicate == predicate and join.outcomes == found
            if same and i not in all_needs:
                break
        else:
            i, join = len(self.joins), _Join(predicate, found)
            self.joins.append(join)
        join.merges.append(node)
        join.before |= needs
        self.outcomes[node.name], self.needs[node.name] = found, {i}

    def _closure(self, needs: set[int]) -> set[int]:
        found: set[int] = set()
        pending = list(needs)
        while pending:
            if (i := pending.pop()) not in found:
                found.add(i)
                pending += self.joins[i].before
        return found

    def _build(self, i: int) -> None:
        join = self.joins[i]
        if join.done:
            return
        join.done = True
        for other in join.before:  # what is inside of a branch comes first
            self._build(other)
        parts: dict[bool, tuple[Part, list[Edge]]] = {}
        outside: list[Edge] = []
        controls: dict[str, None] = {}
        for side in (False, True):
            part = Part(self.by_name, _Resolve(self, join.predicate, side))
            part.outside = outside  # both branches take the same operands
            leaving = [e for m in join.merges for e in self._leaving(m, side, join.predicate, part)]
            part.add(leaving)
            controls |= part.controls
            parts[side] = (part, leaving)
        name = f"{join.merges[0].name}/If"
        kept = {
            branch: parts[side][0].graph(f"{name}/{side}", parts[side][1])
            for branch, side in (("then_branch", True), ("else_branch", False))
        }
        inside = {x for part, _ in parts.values() for x in part.copies}
        waits = tuple(c for c in controls if c not in inside and self._waits(c, join))
        made = bare(name, "If", [join.predicate, *outside], waits)
        made.kept.update(kept)
        self.by_name[name], self.outcomes[name] = made, join.outcomes
        place = 0
        for node in join.merges:
            count = 1 + (node.name in self.indexed)
            node.op, node.controls = "IdentityN", ()
            node.inputs = tuple(Edge(name, place + i) for i in range(count))
            place += count

    def _waits(self, name: str, join: _Join) -> bool:
        """Whether a node exists whatever the predicate is."""
        return join.predicate not in self.outcomes.get(name, {}) and name in self.by_name

    def _leaving(self, merge: Node, side: bool, predicate: Edge, part: Part) -> list[Edge]:
        """What a branch gives to a Merge: the value, and which of its inputs that is."""
        place = 0 if self._of(merge.inputs[0])[predicate] is side else 1
        if merge.name not in self.indexed:
            return [merge.inputs[place]]
        index = bare(f"{merge.name}/{place}", "Const", [])
        index.proto.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(place, tf.int32))
        part.copies[index.name] = index
        self.by_name[index.name] = index
        self.outcomes[index.name] = {predicate: side}
        return [merge.inputs[place], Edge(index.name)]


class _Resolve:
    """What an edge inside of one branch stands for: (edge, whether it comes from outside)."""

    def __init__(self, joins: Joins, predicate: Edge, side: bool):
        self.joins, self.predicate, self.side = joins, predicate, side

    def __call__(self, edge: Edge) -> tuple[Edge, bool]:
        node = self.joins.by_name.get(edge.node)
        if node is not None and self._splits(node):
            return self(node.inputs[0])
        return edge, self.predicate not in self.joins.outcomes.get(edge.node, {})

    def _splits(self, node: Node) -> bool:
        return node.op == "Switch" and self.joins.plain(node.inputs[1]) == self.predicate

    def passes(self, name: str) -> bool:
        """Whether a control edge from a node means nothing inside."""
        node = self.joins.by_name.get(name)
        if node is None or self._splits(node):
            return True
        return self.predicate not in self.joins.outcomes.get(name, {})
