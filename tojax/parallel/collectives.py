"""What a compiled program communicates."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
CALL = re.compile(rf"= (.+?) ({'|'.join(KINDS)})(-start)?\(")
ARRAY = re.compile(r"(pred|[a-z]+[0-9]+)[a-z0-9]*\[([0-9,]*)\]")


class Traffic(NamedTuple):
    """How many of a kind, and the bytes of their results on one device."""

    calls: int
    bytes: int


def collectives(text: str) -> dict[str, Traffic]:
    """By kind, of a program's text after compilation. What a loop contains counts once.

    Example:
      >>> collectives("  %sum = f32[4,2]{1,0} all-reduce(%x), replica_groups={{0,1}}")
      {'all-reduce': Traffic(calls=1, bytes=32)}
    """
    found: dict[str, Traffic] = {}
    for kind, arrays in each(text):
        before = found.get(kind, Traffic(0, 0))
        size = sum(size_of(*x) for x in arrays)
        found[kind] = Traffic(before.calls + 1, before.bytes + size)
    return found


def each(text: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The kind of each, and what it makes: (dtype, shape) of each array.

    Example:
      >>> list(each("  %sum = f32[4,2]{1,0} all-reduce(%x), replica_groups={{0,1}}"))
      [('all-reduce', [('f32', '4,2')])]
    """
    for shape, kind, start in CALL.findall(text):
        arrays = ARRAY.findall(shape)
        if start and kind != "all-reduce":  # (operands, results, counters)
            arrays = [x for x in arrays if x != ("u32", "")]
            arrays = arrays[len(arrays) // 2 :]
        yield kind, arrays


def size_of(dtype: str, shape: str) -> int:
    """Bytes of an array such as f32[4,2]."""
    bits = 8 if dtype == "pred" else int(re.sub(r"\D+", "", dtype))
    count = 1
    for n in filter(None, shape.split(",")):
        count *= int(n)
    return -(-count * bits // 8)
