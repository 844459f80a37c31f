"""Arithmetic, memory traffic and communication of a divided program on one device."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from tojax.parallel.estimation.cost.fusion import Fused, fused
from tojax.parallel.estimation.divide.nodes import Node
from tojax.parallel.estimation.divide.partition import COLLECTIVES, Divided


@dataclass
class Work:
    """What one device does.

    Attributes:
      products: FLOPs of matrix products and convolutions, by dtype of their operands.
      others: FLOPs of everything else, one for each element.
      traffic: bytes read from and written to memory.
      moved: (calls, bytes of the whole arrays on one device) by kind and mesh axes.
    """

    products: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    others: float = 0
    traffic: float = 0
    moved: dict[tuple[str, tuple[str, ...]], tuple[int, float]] = field(default_factory=dict)

    @property
    def flops(self) -> float:
        """Of all."""
        return sum(self.products.values()) + self.others

    def add(self, other: Work, times: int = 1) -> None:
        """Adds what is done so often."""
        for dtype, count in other.products.items():
            self.products[dtype] += count * times
        self.others += other.others * times
        self.traffic += other.traffic * times
        for key, (calls, size) in other.moved.items():
            before = self.moved.get(key, (0, 0))
            self.moved[key] = before[0] + calls * times, before[1] + size * times


def work(part: Divided, fusions: Fused | None = None) -> Work:
    """Counts a program; loops as often as they run, ``while`` once."""
    found, done = fusions or fused(part), Work()
    program = part.program
    for i, node in enumerate(program.nodes):
        if i in part.inner:
            options = [(work(b), b.rounds) for b in part.inner[i]]
            most, rounds = max(options, key=lambda x: x[0].flops)
            done.add(most, rounds)
            continue
        if node.name in COLLECTIVES:
            _communicate(part, node, done)
        elif (count := product(part, node)) is not None:
            done.products[_dtype(part, node)] += count
        else:
            done.others += max((math.prod(part.shape(v)) for v in node.outs), default=0)
        if i in found.reads:
            done.traffic += _traffic(part, node, found.reads[i], found.written)
    return done


def product(part: Divided, node: Node) -> float | None:
    """FLOPs of a matrix product on one device: two for each pair of numbers."""
    if node.name not in ("dot_general", "ragged_dot_general", "conv_general_dilated"):
        return None
    x, y = (part.shape(v) if v is not None else () for v in node.ins[:2])
    out = math.prod(part.shape(node.outs[0]))
    if node.name == "conv_general_dilated":
        channels = node.params["dimension_numbers"].rhs_spec[0]
        each = math.prod(n for i, n in enumerate(y) if i != channels)
        return 2.0 * out * each / math.prod(node.params["lhs_dilation"])  # zeros between are none
    if node.name == "dot_general":
        (over, _), _ = node.params["dimension_numbers"]
        return 2.0 * out * math.prod(x[i] for i in over)
    numbers: Any = node.params["ragged_dot_dimension_numbers"]
    (over, _), _ = numbers.dot_dimension_numbers
    ragged = {*numbers.lhs_ragged_dimensions}
    if ragged & {*over}:  # rows of a group are summed: out is [groups, ...], each row in one
        groups = part.shape(node.ins[2])[-1] if node.ins[2] is not None else 1
        return 2.0 * out / max(groups, 1) * math.prod(x[i] for i in over)
    groups = part.program.values[node.ins[1]].shape[numbers.rhs_group_dimensions[0]]
    here = y[numbers.rhs_group_dimensions[0]]
    return 2.0 * out * math.prod(x[i] for i in over) * here / groups  # its own groups' rows


def _dtype(part: Divided, node: Node) -> str:
    dtypes = [part.program.values[v].dtype for v in node.ins[:2] if v is not None]
    return max(dtypes, key=lambda d: part.program.values[node.ins[dtypes.index(d)]].itemsize)


def _traffic(part: Divided, node: Node, reads: set[int], written: set[int]) -> float:
    """A part of a table is read where one is looked up; of a cache what is written."""
    made = sum(part.bytes(v) for v in node.outs if v in written)
    if node.name == "dynamic_update_slice" and node.ins[1] is not None:
        return 2.0 * part.bytes(node.ins[1])
    sizes = {v: part.bytes(v) for v in reads}
    if node.name in ("gather", "dynamic_slice", "slice") and node.ins[0] in sizes:
        sizes[node.ins[0]] = min(sizes[node.ins[0]], made)
    if node.name == "ragged_dot_general":
        weights, rows = node.ins[1], part.shape(node.ins[0])[0]
        groups = max(part.shape(weights)[0], 1)
        if weights in sizes:  # groups without rows are not read
            sizes[weights] = int(sizes[weights] * min(1.0, rows / groups))
    return float(made + sum(sizes.values()))


def _communicate(part: Divided, node: Node, done: Work) -> None:
    size = sum(max(part.bytes(v), part.bytes(w)) for v, w in zip(node.ins, node.outs))
    key = node.name, node.params["axes"]
    calls, before = done.moved.get(key, (0, 0))
    done.moved[key] = calls + 1, before + size


def time_of(kind: str, size: float, parts: int, bandwidth: float) -> float:
    """Seconds of a collective: (n - 1) / n of an array reaches a device, for an all-reduce twice.

    Args:
      size: bytes on one device: what is summed, what was gathered, or the part that is exchanged.
      parts: devices that take part.
      bandwidth: bytes/s that reach a device.

    Example:
      >>> time_of("all-reduce", 8e9, 4, 1e9)
      12.0
      >>> time_of("all-gather", 8e9, 4, 1e9)
      6.0
    """
    share = (parts - 1) / parts
    return (2 if kind == "all-reduce" else 1) * share * size / bandwidth
