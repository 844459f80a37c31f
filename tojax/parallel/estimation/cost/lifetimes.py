"""The most memory that a divided program needs at once, beside its arguments."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass

from tojax.parallel.estimation.cost.fusion import IN_PLACE, WHOLES, Fused, fused
from tojax.parallel.estimation.divide.partition import Divided

SHOWN = 6


@dataclass(frozen=True)
class Peak:
    """The moment that needs most.

    Attributes:
      temporaries: bytes of what is neither argument nor result.
      largest: (bytes, shape on one device, dtype, operation, module path) of the largest of them.
    """

    temporaries: int
    largest: tuple[tuple[int, tuple[int, ...], str, str, str], ...]


def peak(part: Divided, fusions: Fused | None = None, outside: bool = False) -> Peak:
    """Goes through the program in its order (see ``late``); what nothing reads any more is free.

    Args:
      outside: whether the results count as temporaries, too: those of a loop's body.
    """
    found = fusions or fused(part)
    program = part.program
    results = {found.roots.get(v, v) for v in program.outputs if v is not None}
    last: dict[int, int] = {}
    order = late(part, found)
    for i in order:
        last |= dict.fromkeys(found.reads[i], i)
    live: dict[int, int] = {}
    total, most, held = 0, 0, dict[int, int]()
    for i in order:
        node = program.nodes[i]
        inside = max((peak(b, outside=True).temporaries for b in part.inner.get(i, ())), default=0)
        dying = [v for v in found.reads[i] if last[v] == i and v in live]
        made = [v for v in node.outs if v in found.written and (outside or v not in results)]
        sizes = {v: part.bytes(v) for v in made}
        if node.name not in WHOLES or node.name in IN_PLACE or part.inner.get(i):
            for size in sizes.values():  # in the place of what ends here
                match = next((x for x in dying if live[x] == size), None)
                if match is not None:
                    dying.remove(match)
                    total -= live.pop(match)
        live |= sizes
        total += sum(sizes.values())
        if total + inside > most:
            most, held = total + inside, dict(live)
        for v in dying:
            total -= live.pop(v)
        for v in [v for v in made if v not in last]:
            if v not in results:
                total -= live.pop(v)
    return Peak(most, _told(part, held))


def late(part: Divided, found: Fused) -> list[int]:
    """The nodes that write, in their order, but what comes from arguments alone where it is first
    read: a program opens all matrices of small numbers before it uses one, compilers do not.
    """
    inputs, makers = {*part.program.inputs}, dict[int, int]()
    readers = Counter(v for values in found.reads.values() for v in values)
    waiting: dict[int, list[int]] = {}  # by its last node, what makes an array
    order: list[int] = []
    for i, values in found.reads.items():
        needed = {v: makers.get(v) for v in values if v not in inputs}
        alone = all(j in waiting and readers[v] == 1 for v, j in needed.items())
        chains = [waiting.pop(j) for j in {*needed.values()} if j in waiting]
        before = [n for chain in sorted(chains, key=len, reverse=True) for n in chain]
        makers |= dict.fromkeys(part.program.nodes[i].outs, i)
        if alone:
            waiting[i] = [*before, i]
        else:
            order += [*before, i]
    return order + [i for nodes in waiting.values() for i in nodes]


def _told(part: Divided, held: dict[int, int]) -> tuple:
    makers = {v: n for n in part.program.nodes for v in n.outs if v in held}
    top = heapq.nlargest(SHOWN, held, key=lambda v: held[v])
    return tuple(
        (held[v], part.shape(v), part.program.values[v].dtype, makers[v].name, makers[v].where)
        for v in top
        if v in makers
    )
