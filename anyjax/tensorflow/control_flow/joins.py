"""Switch and Merge outside of loops as If nodes.

A value that depends on a Switch exists only for one outcome of its predicate. A Merge of two
values with opposite outcomes becomes an output of an If; the Merges of one ``tf.cond`` share it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import tensorflow as tf

from anyjax.errors import Unsupported
from anyjax.tensorflow.core.nodes import Edge, Node, Subgraph, bare

Outcomes = dict[Edge, bool]  # predicates -> their values where a value exists


@dataclass
class _Join:
    """Merges of one predicate; ``needs`` are the joins that it depends on."""

    predicate: Edge
    outcomes: Outcomes
    merges: list[Node] = field(default_factory=list)
    needs: set[int] = field(default_factory=set)
    done: bool = False


class Joins:
    """The joins of a graph, whose nodes are in order."""

    def __init__(self, nodes: Iterable[Node]):
        self.by_name = {node.name: node for node in nodes}
        self.outcomes: dict[str, Outcomes] = {}
        self.joins: list[_Join] = []
        self.needs: dict[str, set[int]] = {}  # node -> joins that it depends on
        self.indexed = {e.node for n in self.by_name.values() for e in n.inputs if e.output == 1}
        for node in list(self.by_name.values()):
            self._read_node(node)

    def nodes(self) -> dict[str, Node]:
        for i in range(len(self.joins)):
            self._build(i)
        return self.by_name

    def _outcomes_of(self, edge: Edge) -> Outcomes:
        """Returns the outcomes for which the value of an edge exists."""
        node = self.by_name.get(edge.node)
        outcomes = self.outcomes.get(edge.node, {})
        if node is None or node.op != "Switch":
            return outcomes
        return {**outcomes, self.plain(node.inputs[1]): edge.output == 1}

    def plain(self, edge: Edge) -> Edge:
        """Follows an edge through Identity nodes."""
        while edge.node in self.by_name and self.by_name[edge.node].op == "Identity":
            edge = self.by_name[edge.node].inputs[0]
        return edge

    def _read_node(self, node: Node) -> None:
        """Finds the outcomes of a node, and its join if it is a Merge."""
        sources = (*(e.node for e in node.inputs), *node.controls)
        needs = {i for x in sources for i in self.needs.get(x, ())}
        if node.op == "Merge":
            self._join(node, needs)
            return
        outcomes: Outcomes = {}
        for edge in node.inputs:
            outcomes |= self._outcomes_of(edge)
        for name in node.controls:
            outcomes |= self.outcomes.get(name, {})
        self.outcomes[node.name], self.needs[node.name] = outcomes, needs

    def _join(self, node: Node, needs: set[int]) -> None:
        sides = [self._outcomes_of(e) for e in node.inputs]
        opposite = [p for p, x in sides[0].items() if all(s.get(p) is (not x) for s in sides[1:])]
        if len(sides) != 2 or not opposite:
            raise Unsupported(
                "a Merge of values that are not those of two branches",
                where=f"node {node.name!r}",
                why="no predicate decides which of them exists",
                do="build the graph with tf.cond",
            )
        predicate = opposite[-1]
        outcomes = {p: x for s in sides for p, x in s.items() if p != predicate}
        all_needs = self._closure(needs)
        for i, join in enumerate(self.joins):
            same = join.predicate == predicate and join.outcomes == outcomes
            if same and i not in all_needs:
                break
        else:
            i, join = len(self.joins), _Join(predicate, outcomes)
            self.joins.append(join)
        join.merges.append(node)
        join.needs |= needs
        self.outcomes[node.name], self.needs[node.name] = outcomes, {i}

    def _closure(self, needs: set[int]) -> set[int]:
        closure: set[int] = set()
        pending = list(needs)
        while pending:
            if (i := pending.pop()) not in closure:
                closure.add(i)
                pending += self.joins[i].needs
        return closure

    def _build(self, i: int) -> None:
        join = self.joins[i]
        if join.done:
            return
        join.done = True
        for needed in join.needs:  # inner joins first
            self._build(needed)
        branches: dict[bool, tuple[Subgraph, list[Edge]]] = {}
        outside: list[Edge] = []
        controls: dict[str, None] = {}
        for side in (False, True):
            branch = Subgraph(self.by_name, _Resolve(self, join.predicate, side))
            branch.outside = outside  # both branches take the same operands
            outputs = [
                e for m in join.merges for e in self._outputs(m, side, join.predicate, branch)
            ]
            branch.add(outputs)
            controls |= branch.controls
            branches[side] = (branch, outputs)
        name = f"{join.merges[0].name}/If"
        graphs = {
            attr: branches[side][0].graph(f"{name}/{side}", branches[side][1])
            for attr, side in (("then_branch", True), ("else_branch", False))
        }
        inside = {x for branch, _ in branches.values() for x in branch.copies}
        waits = tuple(c for c in controls if c not in inside and self._waits(c, join))
        if_node = bare(name, "If", [join.predicate, *outside], waits)
        if_node.cache.update(graphs)
        self.by_name[name], self.outcomes[name] = if_node, join.outcomes
        place = 0
        for node in join.merges:
            count = 1 + (node.name in self.indexed)
            node.op, node.controls = "IdentityN", ()
            node.inputs = tuple(Edge(name, place + i) for i in range(count))
            place += count

    def _waits(self, name: str, join: _Join) -> bool:
        """Returns whether a node exists for both outcomes of the predicate."""
        return join.predicate not in self.outcomes.get(name, {}) and name in self.by_name

    def _outputs(self, merge: Node, side: bool, predicate: Edge, branch: Subgraph) -> list[Edge]:
        """Returns a branch's outputs for a Merge: the value, and its place among the inputs."""
        place = 0 if self._outcomes_of(merge.inputs[0])[predicate] is side else 1
        if merge.name not in self.indexed:
            return [merge.inputs[place]]
        index = bare(f"{merge.name}/{place}", "Const", [])
        index.proto.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(place, tf.int32))
        branch.copies[index.name] = index
        self.by_name[index.name] = index
        self.outcomes[index.name] = {predicate: side}
        return [merge.inputs[place], Edge(index.name)]


class _Resolve:
    """Resolves an edge inside of one branch: (edge, whether it comes from outside)."""

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
        """Returns whether a control edge from a node can be dropped inside."""
        node = self.joins.by_name.get(name)
        if node is None or self._splits(node):
            return True
        return self.predicate not in self.joins.outcomes.get(name, {})
