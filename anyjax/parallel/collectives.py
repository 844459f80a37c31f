"""The collectives of a compiled program."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
CALL = re.compile(rf"= (.+?) ({'|'.join(KINDS)})(-start)?\(")
ARRAY = re.compile(r"(pred|[a-z]+[0-9]+)[a-z0-9]*\[([0-9,]*)\]")


class Traffic(NamedTuple):
    """The number of collectives of a kind, and the bytes of their results on one device."""

    calls: int
    bytes: int


def collectives(text: str) -> dict[str, Traffic]:
    """Counts the collectives in a compiled program's text, by kind; a loop's body counts once.

    Example:
      >>> collectives("  %sum = f32[4,2]{1,0} all-reduce(%x), replica_groups={{0,1}}")
      {'all-reduce': Traffic(calls=1, bytes=32)}
    """
    traffic: dict[str, Traffic] = {}
    for kind, arrays in collective_calls(text):
        total = traffic.get(kind, Traffic(0, 0))
        size = sum(size_of(*x) for x in arrays)
        traffic[kind] = Traffic(total.calls + 1, total.bytes + size)
    return traffic


def collective_calls(text: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yields the kind and the results, as (dtype, shape), of each collective.

    Example:
      >>> text = "  %sum = f32[4,2]{1,0} all-reduce(%x), replica_groups={{0,1}}"
      >>> list(collective_calls(text))
      [('all-reduce', [('f32', '4,2')])]
    """
    for shape, kind, start in CALL.findall(text):
        arrays = ARRAY.findall(shape)
        if start and kind != "all-reduce":  # (operands, results, counters)
            arrays = [x for x in arrays if x != ("u32", "")]
            arrays = arrays[len(arrays) // 2 :]
        yield kind, arrays


def size_of(dtype: str, shape: str) -> int:
    """Returns the bytes of an array such as f32[4,2]."""
    bits = 8 if dtype == "pred" else int(re.sub(r"\D+", "", dtype))
    count = 1
    for n in filter(None, shape.split(",")):
        count *= int(n)
    return -(-count * bits // 8)
