"""All-reduces that do not wait for each other as one, as XLA's combiner makes them."""

from __future__ import annotations

from tojax.parallel.estimation.divide.nodes import Node
from tojax.parallel.estimation.divide.partition import Divided

REDUCES = "all-reduce"


def combined(part: Divided) -> Divided:
    """The program with sums over the same axes done together, as late as the first use of one.

    What is summed together is in memory together: queries, keys and values, say.
    """
    nodes: list[Node] = []
    places: dict[int, int] = {}  # the old number of a node with programs inside: the new one
    waiting: dict[tuple, list[Node]] = {}
    owner: dict[int, tuple] = {}

    def flush(key: tuple) -> None:
        group = waiting.pop(key)
        for node in group:
            for v in node.outs:
                del owner[v]
        ins, outs = ([v for n in group for v in getattr(n, k)] for k in ("ins", "outs"))
        first = group[0]
        nodes.append(Node(REDUCES, first.params, ins, outs, [], first.barrier, first.where))

    for i, node in enumerate(part.program.nodes):
        for v in node.ins:
            if v in owner:
                flush(owner[v])
        if node.name == REDUCES:
            key = node.params["axes"], node.barrier
            waiting.setdefault(key, []).append(node)
            owner |= dict.fromkeys(node.outs, key)
            continue
        if i in part.inner:
            places[i] = len(nodes)
        nodes.append(node)
    for key in [*waiting]:
        flush(key)
    part.program.nodes = nodes
    part.inner = {places[i]: [combined(b) for b in inner] for i, inner in part.inner.items()}
    return part
