"""Independent all-reduces combined into one, as XLA's combiner does."""

from __future__ import annotations

from anyjax.parallel.estimation.divide.nodes import Node
from anyjax.parallel.estimation.divide.partition import Divided

REDUCES = "all-reduce"


def combine(divided: Divided) -> Divided:
    """Combines all-reduces over the same axes, each group just before the first use of a result.

    Results of one all-reduce, such as queries, keys and values, are in memory together.
    """
    nodes: list[Node] = []
    new_numbers: dict[int, int] = {}  # of nodes with programs inside, by their old number
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

    for i, node in enumerate(divided.program.nodes):
        for v in node.ins:
            if v in owner:
                flush(owner[v])
        if node.name == REDUCES:
            key = node.params["axes"], node.barrier
            waiting.setdefault(key, []).append(node)
            owner |= dict.fromkeys(node.outs, key)
            continue
        if i in divided.inner:
            new_numbers[i] = len(nodes)
        nodes.append(node)
    for key in [*waiting]:
        flush(key)
    divided.program.nodes = nodes
    divided.inner = {
        new_numbers[i]: [combine(b) for b in inner] for i, inner in divided.inner.items()
    }
    return divided
