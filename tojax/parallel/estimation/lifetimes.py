"""The most memory that a divided program needs at once, beside its arguments."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from tojax.parallel.estimation.fusion import IN_PLACE, WHOLES, Fused, fused
from tojax.parallel.estimation.partition import Divided

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
    """Goes through the program in its order; what nothing reads any more is free.

    Args:
      outside: whether the results count as temporaries, too: those of a loop's body.
    """
    found = fusions or fused(part)
    program = part.program
    results = {found.roots.get(v, v) for v in program.outputs if v is not None}
    last: dict[int, int] = {}
    for i, values in found.reads.items():
        last |= dict.fromkeys(values, i)
    live: dict[int, int] = {}
    total, most, held, at = 0, 0, dict[int, int](), -1
    for i in found.reads:
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
            most, held, at = total + inside, dict(live), i
        for v in dying:
            total -= live.pop(v)
        for v in [v for v in made if v not in last]:
            if v not in results:
                total -= live.pop(v)
    return Peak(most, _told(part, held, at))


def _told(part: Divided, held: dict[int, int], at: int) -> tuple:
    makers = {v: n for n in part.program.nodes[: at + 1] for v in n.outs if v in held}
    top = heapq.nlargest(SHOWN, held, key=lambda v: held[v])
    return tuple(
        (held[v], part.shape(v), part.program.values[v].dtype, makers[v].name, makers[v].where)
        for v in top
        if v in makers
    )
