"""Arithmetic, memory traffic and communication of a divided program on one device."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import jax

from anyjax.parallel.estimation.cost.fusion import Fused, fuse
from anyjax.parallel.estimation.divide.nodes import Node
from anyjax.parallel.estimation.divide.partition import ATTENTION, COLLECTIVES, PRODUCTS, Divided


@dataclass
class Work:
    """The work of one device.

    Attributes:
      products: FLOPs of matrix products and convolutions, by dtype of their operands.
      other_flops: FLOPs of everything else, one for each element.
      traffic: bytes read from and written to memory.
      communication: (calls, bytes of the whole arrays on one device) by kind and mesh axes.
    """

    products: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    other_flops: float = 0
    traffic: float = 0
    communication: dict[tuple[str, tuple[str, ...]], tuple[int, float]] = field(
        default_factory=dict
    )

    @property
    def flops(self) -> float:
        return sum(self.products.values()) + self.other_flops

    def add(self, other: Work, times: int = 1) -> None:
        for dtype, count in other.products.items():
            self.products[dtype] += count * times
        self.other_flops += other.other_flops * times
        self.traffic += other.traffic * times
        for key, (calls, size) in other.communication.items():
            total = self.communication.get(key, (0, 0))
            self.communication[key] = total[0] + calls * times, total[1] + size * times


def count_work(divided: Divided, fusions: Fused | None = None) -> Work:
    """Counts the work of a program; scans as often as they run, ``while`` once."""
    total = Work()
    for _, work, times in each_work(divided, fusions):
        total.add(work, times)
    return total


def each_work(divided: Divided, fusions: Fused | None = None) -> Iterator[tuple[Node, Work, int]]:
    """Yields each operation with its work and how often it runs; those inside of loops, too, where
    ``where`` is the path from outside, and of branches those of the one with most FLOPs.
    """
    fused = fusions or fuse(divided)
    for i, node in enumerate(divided.program.nodes):
        if i not in divided.inner:
            yield node, _work_of(divided, i, fused), 1
            continue
        bodies = divided.inner[i]
        most = bodies[0]
        if len(bodies) > 1:
            most = max(bodies, key=lambda b: count_work(b).flops)
        for inner, work, times in each_work(most):
            yield replace(inner, where=f"{node.where}/{inner.where}"), work, times * most.rounds


def _work_of(divided: Divided, i: int, fused: Fused) -> Work:
    node, work = divided.program.nodes[i], Work()
    if node.name in COLLECTIVES:
        _add_communication(divided, node, work)
    elif (count := product_flops(divided, node)) is not None:
        work.products[_dtype(divided, node)] += count
    else:
        work.other_flops += max((math.prod(divided.shape(v)) for v in node.outs), default=0)
    if i in fused.reads:
        work.traffic += _traffic(divided, node, fused.reads[i], fused.written)
    return work


def product_flops(divided: Divided, node: Node) -> float | None:
    """Returns a matrix product's FLOPs on one device, two for each pair of numbers; else None."""
    if node.name in ATTENTION:
        return _attention_flops(divided, node)
    if node.name not in PRODUCTS:
        return None
    x, y = (divided.shape(v) if v is not None else () for v in node.ins[:2])
    out = math.prod(divided.shape(node.outs[0]))
    if node.name == "conv_general_dilated":
        channels = node.params["dimension_numbers"].rhs_spec[0]
        kernel_size = math.prod(n for i, n in enumerate(y) if i != channels)
        return (
            2.0 * out * kernel_size / math.prod(node.params["lhs_dilation"])
        )  # zeros between are none
    if node.name == "dot_general":
        (over, _), _ = node.params["dimension_numbers"]
        return 2.0 * out * math.prod(x[i] for i in over)
    numbers: Any = node.params["ragged_dot_dimension_numbers"]
    (over, _), _ = numbers.dot_dimension_numbers
    ragged = {*numbers.lhs_ragged_dimensions}
    if ragged & {*over}:  # rows of a group are summed: out is [groups, ...], each row in one
        groups = divided.shape(node.ins[2])[-1] if node.ins[2] is not None else 1
        return 2.0 * out / max(groups, 1) * math.prod(x[i] for i in over)
    groups = divided.program.values[node.ins[1]].shape[numbers.rhs_group_dimensions[0]]
    local_groups = y[numbers.rhs_group_dimensions[0]]
    return 2.0 * out * math.prod(x[i] for i in over) * local_groups / groups  # its own groups' rows


def _attention_flops(divided: Divided, node: Node) -> float:
    """Returns the FLOPs of an attention: of scores and result, two products; of a gradient, which
    makes the scores again, five.
    """
    (*rows, width), (*_, source, values) = (divided.shape(node.ins[i]) for i in (0, 2))
    of_keys, of_values = (3, 2) if node.name == "attention_gradient" else (1, 1)
    return 2.0 * math.prod(rows) * source * (of_keys * width + of_values * values)


def _dtype(divided: Divided, node: Node) -> str:
    """Returns the wider dtype of a product's operands, with the precision that it asks for."""
    dtypes = [divided.program.values[v].dtype for v in node.ins[:2] if v is not None]
    widest = max(dtypes, key=lambda d: divided.program.values[node.ins[dtypes.index(d)]].itemsize)
    precision = node.params.get("precision")
    setting = precision[0] if isinstance(precision, tuple) else precision
    if widest != "float32" or not isinstance(setting, jax.lax.Precision):
        return widest
    return widest if setting == jax.lax.Precision.DEFAULT else f"{widest}, {setting.name.lower()}"


def _traffic(divided: Divided, node: Node, reads: set[int], written: set[int]) -> float:
    """Returns the bytes that a node reads and writes; of tables and caches only those accessed."""
    written_bytes = sum(divided.bytes(v) for v in node.outs if v in written)
    if node.name == "dynamic_update_slice" and node.ins[1] is not None:
        return 2.0 * divided.bytes(node.ins[1])
    sizes = {v: divided.bytes(v) for v in reads}
    if node.name in ("gather", "dynamic_slice", "slice") and node.ins[0] in sizes:
        sizes[node.ins[0]] = min(sizes[node.ins[0]], written_bytes)
    if node.name == "ragged_dot_general":
        weights, rows = node.ins[1], divided.shape(node.ins[0])[0]
        groups = max(divided.shape(weights)[0], 1)
        if weights in sizes:  # groups without rows are not read
            sizes[weights] = int(sizes[weights] * min(1.0, rows / groups))
    return float(written_bytes + sum(sizes.values()))


def _add_communication(divided: Divided, node: Node, total: Work) -> None:
    size = sum(max(divided.bytes(v), divided.bytes(w)) for v, w in zip(node.ins, node.outs))
    key = node.name, node.params["axes"]
    calls, total_size = total.communication.get(key, (0, 0))
    total.communication[key] = calls + 1, total_size + size


def time_of(kind: str, size: float, devices: int, bandwidth: float) -> float:
    """Returns a collective's seconds: (n - 1) / n of an array reaches a device; all-reduces twice.

    Args:
      kind: the collective.
      size: bytes on one device: of the sum, of the gathered array, or of the part exchanged.
      devices: the number of devices that take part.
      bandwidth: bytes/s that reach a device.

    Example:
      >>> time_of("all-reduce", 8e9, 4, 1e9)
      12.0
      >>> time_of("all-gather", 8e9, 4, 1e9)
      6.0
    """
    share = (devices - 1) / devices
    return (2 if kind == "all-reduce" else 1) * share * size / bandwidth
