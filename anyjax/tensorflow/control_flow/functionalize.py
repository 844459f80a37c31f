"""Control flow of TensorFlow 1 (Switch, Merge, Enter, Exit, NextIteration, LoopCond) as If and
While nodes, whose branches and bodies are graphs of their own.

A frame is a loop: its Merge nodes are carried values, its other Enter nodes constant ones.
Outside of loops, a Merge joins the values of both outcomes of a Switch predicate.
"""

from __future__ import annotations

from collections.abc import Iterable

from anyjax.errors import Unsupported
from anyjax.tensorflow.control_flow.joins import Joins
from anyjax.tensorflow.core.nodes import Edge, Graph, Node, Subgraph, bare, in_order
from anyjax.tensorflow.core.running import handles

OPS = {"Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond"}
OPS |= {f"Ref{op}" for op in OPS}


def needed(graph: Graph) -> bool:
    """Returns whether a graph has control flow of TensorFlow 1."""
    return any(node.op in OPS for node in graph.nodes)


def functionalized(graph: Graph, ends: Iterable[str] = ()) -> Graph:
    """Returns the graph with If and While nodes instead.

    Raises:
      Unsupported: it is no loop or branch that TensorFlow would build.
    """
    ends = tuple(ends)
    nodes = {node.name: node for node in graph.nodes}
    for node in nodes.values():
        if node.op in OPS:
            node.op = node.op.removeprefix("Ref")
    _Frames(nodes).replace_all()
    find = nodes.__getitem__
    return _joined(in_order(find, graph.inputs, graph.outputs, ends, graph.name), ends)


def _joined(graph: Graph, ends: Iterable[str] = ()) -> Graph:
    if not any(node.op == "Merge" for node in graph.nodes):
        return graph
    nodes = Joins(graph.nodes).nodes()
    return in_order(nodes.__getitem__, graph.inputs, graph.outputs, ends, graph.name)


@handles("Switch")
def switch(run, node, inputs):
    raise Unsupported(
        "a value that exists only in one branch leaves it",
        why="no Merge joins it with a value of the other branch",
        do="take the output of tf.cond, or other nodes, as the outputs of the graph",
    )


@handles("LoopCond")
def test(run, node, inputs):
    return tuple(inputs)


@handles("Merge", "Enter", "Exit", "NextIteration")
def lost(run, node, inputs):
    raise Unsupported(
        f"{node.op} outside of a loop or branch",
        why="the other nodes of its control flow are not those that TensorFlow builds",
        do="build the graph with tf.while_loop and tf.cond",
    )


class _Frames:
    """The loops of a graph, inner ones first; its nodes are replaced in place."""

    def __init__(self, nodes: dict[str, Node]):
        self.nodes = nodes
        self.done: set[str] = set()
        self.merges: dict[str, list[Node]] = {}
        self.tests: dict[str, str] = {}  # frame -> its LoopCond
        self.exits: dict[str, list[Node]] = {}
        self.enters: dict[str, list[Node]] = {}
        self._assign_nodes()

    def _assign_nodes(self) -> None:
        """Finds the frame of every Merge, LoopCond and Exit node."""
        frame_of: dict[str, str] = {}
        for node in self.nodes.values():
            if node.op == "Enter":
                self.enters.setdefault(node.attr("frame_name"), []).append(node)
        for node in self.nodes.values():
            if node.op == "Merge" and (frame := self._entered(node)) is not None:
                self.merges.setdefault(frame, []).append(node)
                frame_of[node.name] = frame
        for node in self.nodes.values():
            if node.op == "Switch" and node.inputs[0].node in frame_of:
                test = self._plain(node.inputs[1]).node
                if test in self.nodes and self.nodes[test].op == "LoopCond":
                    frame_of[node.name] = frame = frame_of[node.inputs[0].node]
                    self.tests[frame] = test
        for node in self.nodes.values():
            if node.op == "Exit" and (at := self._plain(node.inputs[0]).node) in frame_of:
                self.exits.setdefault(frame_of[at], []).append(node)
        self.of_exit = {x.name: frame for frame, xs in self.exits.items() for x in xs}

    def _entered(self, merge: Node) -> str | None:
        for edge in merge.inputs:
            source = self.nodes.get(edge.node)
            if source is not None and source.op == "Enter":
                return source.attr("frame_name")
        return None

    def _plain(self, edge: Edge) -> Edge:
        """Follows an edge through Identity nodes."""
        while edge.node in self.nodes and self.nodes[edge.node].op == "Identity":
            (edge,) = self.nodes[edge.node].inputs
        return edge

    def replace_all(self) -> None:
        """Replaces every loop."""
        for frame in self.merges:
            self.replace(frame)

    def replace(self, frame: str) -> None:
        """Makes a loop a While, and each of its Exit nodes an Identity of one of its outputs."""
        if frame in self.done:
            return
        self.done.add(frame)
        if frame not in self.tests:
            raise Unsupported(
                f"the loop {frame!r} has no condition",
                why="no Switch of what it carries is decided by a LoopCond",
                do="build the graph with tf.while_loop",
            )
        merges = self.merges[frame]
        subgraph = Subgraph(self.nodes, _Resolve(self, frame))
        enters = [next(e for e in m.inputs if self.nodes[e.node].op == "Enter") for m in merges]
        for merge in merges:
            subgraph.edge(Edge(merge.name))  # in the order of the loop's variables
        test = self.nodes[self.tests[frame]]
        subgraph.add([test.inputs[0]])
        nexts = [self._next(merge) for merge in merges]
        turns = [x.inputs[0] for x in nexts]
        ends = [c for x in nexts for c in x.controls if not subgraph.resolve.passes(c)]
        subgraph.add(turns, ends)
        cond = subgraph.graph(f"{frame}/cond", [test.inputs[0]])
        body = subgraph.graph(f"{frame}/body", turns, ends, carry=True)
        outer = [self.nodes[e.node].inputs[0] for e in enters] + subgraph.outside[len(merges) :]
        controls = tuple(dict.fromkeys(c for e in self.enters[frame] for c in e.controls))
        loop = bare(f"{frame}/While", "While", outer, controls)
        loop.cache.update(cond=_joined(cond), body=_joined(body, ends))
        self.nodes[loop.name] = loop
        for node in self.exits.get(frame, []):
            place = subgraph.outside.index(subgraph.resolve(node.inputs[0])[0])
            node.op, node.inputs = "Identity", (Edge(loop.name, place),)

    def _next(self, merge: Node) -> Node:
        for edge in merge.inputs:
            node = self.nodes[edge.node]
            if node.op == "NextIteration":
                return node
        return bare(merge.name, "NextIteration", [Edge(merge.name)])


class _Resolve:
    """Resolves an edge inside of one loop: (edge, whether it comes from outside)."""

    def __init__(self, frames: _Frames, frame: str):
        self.frames, self.frame = frames, frame
        self.merges = {m.name for m in frames.merges[frame]}

    def __call__(self, edge: Edge) -> tuple[Edge, bool]:
        nodes = self.frames.nodes
        node = nodes.get(edge.node)
        if node is None:
            return edge, True
        if node.name in self.merges:
            return Edge(node.name), True
        if node.op == "Switch" and self._tests(node):
            return self(node.inputs[0])
        if node.op == "Enter" and node.attr("frame_name") == self.frame:
            return node.inputs[0], True
        if node.name in self.frames.of_exit:
            self.frames.replace(self.frames.of_exit[node.name])  # of an inner loop
        return edge, False

    def _tests(self, node: Node) -> bool:
        return self.frames._plain(node.inputs[1]).node == self.frames.tests[self.frame]

    def passes(self, name: str) -> bool:
        """Returns whether a node only stands for a value of the loop, so that it is not copied."""
        node = self.frames.nodes.get(name)
        if node is None or node.name in self.merges or node.op == "LoopCond":
            return True
        if name in self.frames.of_exit:
            self.frames.replace(self.frames.of_exit[name])
        if node.op == "Switch":
            return self._tests(node)
        return node.op == "Enter" and node.attr("frame_name") == self.frame
