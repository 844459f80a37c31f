"""The peak memory of a divided program, beside its arguments."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass

from anyjax.parallel.estimation.cost.fusion import IN_PLACE, UNFUSED, Fused, fuse
from anyjax.parallel.estimation.divide.partition import Divided

SHOWN = 6


@dataclass(frozen=True)
class Peak:
    """The peak.

    Attributes:
      temporaries: bytes of all arrays that are neither arguments nor results.
      largest: (bytes, shape on one device, dtype, operation, module path) of the largest of them.
    """

    temporaries: int
    largest: tuple[tuple[int, tuple[int, ...], str, str, str], ...]


def find_peak(divided: Divided, fusions: Fused | None = None, results_count: bool = False) -> Peak:
    """Follows a program in ``delayed_order``; arrays are freed after their last use.

    Args:
      divided: the program.
      fusions: its fusion, if it is known.
      results_count: whether results count as temporaries, as those of a loop's body do.
    """
    fused = fusions or fuse(divided)
    program = divided.program
    results = {fused.roots.get(v, v) for v in program.outputs if v is not None}
    last: dict[int, int] = {}
    order = delayed_order(divided, fused)
    for i in order:
        last |= dict.fromkeys(fused.reads[i], i)
    live: dict[int, int] = {}
    total, most, live_at_peak = 0, 0, dict[int, int]()
    for i in order:
        node = program.nodes[i]
        inside = max(
            (find_peak(b, results_count=True).temporaries for b in divided.inner.get(i, ())),
            default=0,
        )
        dying = [v for v in fused.reads[i] if last[v] == i and v in live]
        written = [
            v for v in node.outs if v in fused.written and (results_count or v not in results)
        ]
        sizes = {v: divided.bytes(v) for v in written}
        if node.name not in UNFUSED or node.name in IN_PLACE or divided.inner.get(i):
            for size in sizes.values():  # reuses an array whose last use is here
                match = next((x for x in dying if live[x] == size), None)
                if match is not None:
                    dying.remove(match)
                    total -= live.pop(match)
        live |= sizes
        total += sum(sizes.values())
        if total + inside > most:
            most, live_at_peak = total + inside, dict(live)
        for v in dying:
            total -= live.pop(v)
        for v in [v for v in written if v not in last]:
            if v not in results:
                total -= live.pop(v)
    return Peak(most, _largest(divided, live_at_peak))


def delayed_order(divided: Divided, fused: Fused) -> list[int]:
    """Returns the writing nodes in order, but those that need only arguments at their first use.

    A program may dequantize all matrices before it uses the first one; compilers do not.
    """
    inputs, makers = {*divided.program.inputs}, dict[int, int]()
    readers = Counter(v for values in fused.reads.values() for v in values)
    waiting: dict[int, list[int]] = {}  # the nodes that compute an array, by the last of them
    order: list[int] = []
    for i, values in fused.reads.items():
        needed = {v: makers.get(v) for v in values if v not in inputs}
        is_from_arguments = all(j in waiting and readers[v] == 1 for v, j in needed.items())
        chains = [waiting.pop(j) for j in {*needed.values()} if j in waiting]
        chain_nodes = [n for chain in sorted(chains, key=len, reverse=True) for n in chain]
        makers |= dict.fromkeys(divided.program.nodes[i].outs, i)
        if is_from_arguments:
            waiting[i] = [*chain_nodes, i]
        else:
            order += [*chain_nodes, i]
    return order + [i for nodes in waiting.values() for i in nodes]


def _largest(divided: Divided, live: dict[int, int]) -> tuple:
    makers = {v: n for n in divided.program.nodes for v in n.outs if v in live}
    top = heapq.nlargest(SHOWN, live, key=lambda v: live[v])
    return tuple(
        (
            live[v],
            divided.shape(v),
            divided.program.values[v].dtype,
            makers[v].name,
            makers[v].where,
        )
        for v in top
        if v in makers
    )
