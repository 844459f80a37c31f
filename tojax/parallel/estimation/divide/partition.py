"""A program divided over a mesh by where its inputs lie, with the collectives that this takes.

Every operation is divided along the dimensions that its operands are divided along; what does not
go together is gathered, what is summed over devices is reduced. XLA's partitioner decides by more
rules: what compiled programs do is in ``compiled.py``, and tests compare the two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tojax.parallel.estimation.divide.labels import Label, Labels, labels_of
from tojax.parallel.estimation.divide.nodes import Node, Program, Value

Placed = tuple[tuple[str, ...], ...]  # for each dimension the mesh axes that divide it
WHOLE: tuple[str, ...] = ()
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")


@dataclass
class Divided:
    """A program on one device.

    Attributes:
      program: its nodes, collectives among them; values have their shapes on all devices.
      placed: where each value lies.
      rounds: how often it runs: the length of a loop.
    """

    program: Program
    mesh: Mapping[str, int]
    placed: dict[int, Placed]
    inner: dict[int, list[Divided]] = field(default_factory=dict)
    rounds: int = 1
    unknown: set[str] = field(default_factory=set)

    def at(self, v: int | None) -> Placed:
        """Where a value lies; literals have no dimensions."""
        return () if v is None else self.placed[v]

    def shape(self, v: int) -> tuple[int, ...]:
        """The shape on one device."""
        value, placed = self.program.values[v], self.placed[v]
        parts = [math.prod(self.mesh[a] for a in axes) for axes in placed]
        return tuple(-(-n // p) for n, p in zip(value.shape, parts, strict=True))

    def bytes(self, v: int) -> int:
        """Bytes on one device."""
        return math.ceil(math.prod(self.shape(v)) * self.program.values[v].itemsize)


def whole(value: Value) -> Placed:
    """On every device."""
    return (WHOLE,) * len(value.shape)


def divided(
    program: Program,
    mesh: Mapping[str, int],
    inputs: Sequence[Placed],
    outputs: Sequence[Placed | None] = (),
    weights: Sequence[bool] = (),
) -> Divided:
    """The program with its inputs and outputs placed so.

    Args:
      inputs: where each input lies.
      outputs: where each output shall lie; None where it may.
      weights: which inputs are weights: what is computed is divided as the others are.
    """
    first = Partition(program, mesh, inputs, weights, {})
    first.run()
    wanted = _wanted(program, first, outputs)
    second = Partition(program, mesh, inputs, weights, wanted)
    second.run()
    second.finish(outputs)
    return second.made


def _wanted(program: Program, found: Partition, outputs: Sequence) -> dict[int, Placed]:
    """Where values would best lie for what is computed from them, one by one: gradients as the
    weights that they are added to.
    """
    wanted: dict[int, Placed] = {}
    for v, place in zip(program.outputs, outputs):
        if v is not None and place is not None:
            wanted[v] = place
    fixed = {*program.inputs}
    for node in reversed(program.nodes):
        labels = labels_of(node, program.values)
        if not labels.known or node.inner or node.name in NOT_BACK:
            continue
        for out, dims in zip(node.outs, labels.outs):
            place = wanted.get(out, found.first_place(out))
            given: dict[Any, Any] = {d: a for d, a in zip(dims, place) if d is not None and a}
            if not given:
                continue
            for v, own in zip(node.ins, labels.ins):
                if v is None or v in fixed or v in wanted:
                    continue
                before = found.first_place(v)
                held = {a for axes in before for a in axes}
                more = tuple(
                    b or tuple(a for a in given.get(d, ()) if a not in held)
                    for b, d in zip(before, own)
                )
                if more != before and d_fits(more, program.values[v].shape, found.mesh):
                    wanted[v] = more
    return wanted


NOT_BACK = {"dot_general", "ragged_dot_general", "conv_general_dilated", "gather", "scatter-add"}


def d_fits(placed: Placed, shape: Sequence[int], mesh: Mapping[str, int]) -> bool:
    """Whether the axes divide the dimensions, each at most once."""
    axes = [a for dim in placed for a in dim]
    parts = (math.prod(mesh[a] for a in dim) for dim in placed)
    return len(axes) == len({*axes}) and all(n % p == 0 for n, p in zip(shape, parts))


class Partition:
    """Goes through a program once."""

    def __init__(self, program, mesh, inputs, weights, wanted):
        self.mesh = mesh = {k: n for k, n in mesh.items() if n > 1}
        self.wanted = wanted
        self.source = program
        copy = Program([*program.values], [*program.inputs], [*program.outputs], [])
        self.made = Divided(copy, mesh, dict(zip(program.inputs, inputs, strict=True)))
        for v in range(len(program.values)):  # constants inside of calls are made of nothing
            self.made.placed.setdefault(v, whole(program.values[v]))
        self.moved: dict[tuple, int] = {}
        self.spread: dict[int, tuple[Node, Labels]] = {}  # what is made of smaller things
        self.weights = {v for v, weight in zip(program.inputs, weights) if weight}

    def first_place(self, v: int) -> Placed:
        """Where a value of the source lies when it is made."""
        return self.made.placed[v]

    def run(self) -> None:
        """Divides every node."""
        for node in self.source.nodes:
            if node.inner:
                self.loop(node)
            else:
                self.plain(node)

    def plain(self, node: Node) -> None:
        """An operation without programs inside."""
        labels = labels_of(node, self.source.values)
        if not labels.known:
            self.made.unknown.add(node.name)
        chosen, summed = self.choose(node, labels)
        place = lambda dims: tuple(chosen.get(d, WHOLE) if d is not None else WHOLE for d in dims)
        ins = [
            v if v is None else self.move(v, place(dims), node.barrier)
            for v, dims in zip(node.ins, labels.ins)
        ]
        if all(v is None or v in self.weights for v in node.ins) and len(node.ins) > 0:
            self.weights.update(node.outs)
        for v, dims in zip(node.outs, labels.outs):
            self.made.placed[v] = place(dims)
        outs = node.outs
        shifted = chosen.get(labels.shifted, WHOLE) if labels.shifted is not None else WHOLE
        if summed or shifted:
            outs = [self.like(v) for v in node.outs]
        self.add(Node(node.name, node.params, ins, outs, [], node.barrier, node.where))
        for partial, out in zip(outs, node.outs):
            if summed:
                self.sum(node, partial, out, summed)
            elif shifted:
                self.collective("collective-permute", partial, out, shifted, node)
        if node.name == "broadcast_in_dim":
            self.spread[node.outs[0]] = node, labels

    def choose(self, node: Node, labels: Labels) -> tuple[dict[Label, tuple[str, ...]], list[str]]:
        """(The axes that divide each label, those over which results are summed.)"""
        placed = [() if v is None else self.made.placed[v] for v in node.ins]
        kept = {d for dims in labels.outs for d in dims}
        sizes: dict[Label, int] = {}
        for vs, all_dims in ((node.ins, labels.ins), (node.outs, labels.outs)):
            for v, dims in zip(vs, all_dims):
                shape = () if v is None else self.source.values[v].shape
                for d, n in zip(dims, shape):
                    sizes[d] = math.gcd(sizes.get(d, n), n)
        chosen: dict[Label, tuple[str, ...]] = {}
        summed: list[str] = []
        for axis in self.mesh:
            label = self.best(node, labels, placed, kept, axis)
            axes = (*chosen.get(label, ()), axis)
            if label is None or sizes[label] % math.prod(self.mesh[a] for a in axes):
                continue
            chosen[label] = axes
            if label not in kept:
                summed.append(axis)
        return chosen, summed

    def best(self, node, labels: Labels, placed, kept, axis: str) -> Label:
        """The label that an axis divides: what is computed stays where it is, else the cheapest."""
        costs: dict[Label, float] = {}
        strong: dict[Label, float] = {}
        held: list[tuple[Label, float]] = []
        for v, place, dims in zip(node.ins, placed, labels.ins):
            for d, axes in zip(dims, place):
                if axis in axes and v is not None:
                    size = self.made.bytes(v) * self.mesh[axis]
                    held.append((d, size))
                    if d is not None and (v not in self.weights or node.name == "gather"):
                        strong[d] = strong.get(d, 0) + size
        if not held:
            for v, dims in zip(node.outs, labels.outs):
                for d, axes in zip(dims, self.wanted.get(v, ())):
                    if axis in axes and d is not None:
                        return d
            return None
        out = sum(self.made.bytes(v) for v in node.outs)
        for d in {d for d, _ in held if d is not None}:
            costs[d] = sum(n for other, n in held if other != d)
            costs[d] += 0 if d in kept else 2 * out
        stays = {d: n for d, n in strong.items() if d in kept}
        if stays:
            first = max(stays, key=lambda d: stays[d])
            moved = min((n for d, n in costs.items() if d in kept and d != first), default=math.inf)
            if node.name == "dot_general" and moved + out < costs[first]:  # few rows, many weights
                return min((d for d in costs if d in kept and d != first), key=lambda d: costs[d])
            return first
        if len({d for d, _ in held}) == 1 and self.everywhere(held[0][0], node, labels, axis):
            return held[0][0]
        costs[None] = sum(n for _, n in held)
        return min(costs, key=lambda d: costs[d])

    def everywhere(self, label: Label, node: Node, labels: Labels, axis: str) -> bool:
        """Whether all operands with the label are divided there by the axis."""
        return all(
            axis in axes
            for v, dims in zip(node.ins, labels.ins)
            for d, axes in zip(dims, () if v is None else self.made.placed[v])
            if d == label
        )

    def sum(self, node: Node, partial: int, out: int, axes: Sequence[str]) -> None:
        """Adds the collective that sums a result over devices: an all-reduce, or where only a part
        is wanted a reduce-scatter.
        """
        place = self.made.placed[out]
        want = self.wanted.get(out, place)
        extra = {a for dim in want for a in dim} - {a for dim in place for a in dim}
        scatter = [a for a in axes if a in extra]
        if scatter:
            target = tuple(
                (*dim, *(a for a in more if a in scatter)) for dim, more in zip(place, want)
            )
            if d_fits(target, self.source.values[out].shape, self.mesh):
                self.made.placed[out] = target
                rest = [a for a in axes if a not in scatter]
                if rest:
                    middle = self.like(out)
                    self.made.placed[middle] = place
                    self.collective("all-reduce", partial, middle, rest, node)
                    partial = middle
                self.collective("reduce-scatter", partial, out, scatter, node)
                return
        self.collective("all-reduce", partial, out, axes, node)

    def move(self, v: int, target: Placed, barrier: int = 0) -> int:
        """The value at another place; what was gathered is used again."""
        place = self.made.placed[v]
        if place == target:
            return v
        key = v, target, barrier
        if key not in self.moved:
            before = {a: i for i, axes in enumerate(place) for a in axes}
            after = {a: i for i, axes in enumerate(target) for a in axes}
            gone = [a for a in before if a not in after]
            turned = [a for a in before if a in after and after[a] != before[a]]
            new = self.moved[key] = self.like(v)
            self.made.placed[new] = target
            node = Node("", {}, [v], [new], [], barrier)
            if v in self.spread:
                self.again(v, new, target, barrier)
                return new
            if gone:
                self.collective("all-gather", v, new, gone + turned, node)
            elif turned:
                self.collective("all-to-all", v, new, turned, node)
            else:
                self.add(Node("slice", {}, [v], [new], [], barrier))
            if v in self.weights:
                self.weights.add(new)
        return self.moved[key]

    def again(self, v: int, new: int, target: Placed, barrier: int) -> None:
        """Makes a broadcast value anew at another place, of its operand there."""
        node, labels = self.spread[v]
        axes = dict(zip(labels.outs[0], target))
        ins = [
            x
            if x is None
            else self.move(x, tuple(axes.get(d, WHOLE) if d is not None else WHOLE for d in dims))
            for x, dims in zip(node.ins, labels.ins)
        ]
        self.add(Node(node.name, node.params, ins, [new], [], barrier, node.where))
        self.spread[new] = node, labels

    def collective(self, kind: str, v: int, out: int, axes: Sequence[str], node: Node) -> None:
        """Adds one."""
        self.add(Node(kind, {"axes": tuple(axes)}, [v], [out], [], node.barrier, node.where))

    def like(self, v: int) -> int:
        """A new value that is as this one."""
        new = self.made.program.new(self.made.program.values[v])
        self.made.placed[new] = self.made.placed[v]
        return new

    def add(self, node: Node) -> int:
        """Adds a node; its number."""
        self.made.program.nodes.append(node)
        return len(self.made.program.nodes) - 1

    def loop(self, node: Node) -> None:
        """A loop or a branch: what is carried lies as the body leaves it."""
        if node.name == "scan":
            lead = node.params["num_consts"], node.params["num_carry"]
            bodies, skip, rounds = node.inner, 0, node.params["length"]
        elif node.name == "while":
            asked, given = node.params["cond_nconsts"], node.params["body_nconsts"]
            lead, rounds = (given, len(node.outs)), 1
            bodies, skip = node.inner[1:], asked
        else:
            lead, bodies, skip, rounds = (len(node.ins) - 1, 0), node.inner, 1, 1
        consts, count = lead
        places = [() if v is None else self.made.placed[v] for v in node.ins[skip:]]
        start = places[: consts + count]
        start += [p[1:] for p in places[consts + count :]]  # steps
        weights = [v in self.weights for v in node.ins[skip:]]
        for _ in range(3):
            inner = [self.body(b, start, weights) for b in bodies]
            outs = [[d.at(o) for o in d.program.outputs] for d in inner]
            carried = [_joined(a, b) for a, b in zip(start[consts:], outs[0][:count])]
            if carried == start[consts : consts + count]:
                break
            start[consts : consts + count] = carried
        ends = [*start[consts : consts + count], *outs[0][count:]]
        inner = [divided(b, self.mesh, self.inputs(b, start), ends, weights) for b in bodies]
        steps = [((), *p) if node.name == "scan" else p for p in outs[0][count:]]
        for out, place in zip(node.outs, [*start[consts : consts + count], *steps]):
            self.made.placed[out] = place
        targets = [*start[: consts + count], *(((), *p) for p in start[consts + count :])]
        ins = [*node.ins[:skip]]
        ins += [
            v if v is None else self.move(v, place, node.barrier)
            for v, place in zip(node.ins[skip:], targets)
        ]
        new = Node(node.name, node.params, ins, node.outs, [], node.barrier, node.where)
        number = self.add(new)
        for part in inner:
            part.rounds = rounds
            self.made.unknown |= part.unknown
        self.made.inner[number] = inner

    def inputs(self, body: Program, start: Sequence[Placed]) -> list[Placed]:
        """Places of a body's inputs; constants of its own are on every device."""
        rest = body.inputs[len(start) :]
        pad = lambda v, p: p if len(p) == len(body.values[v].shape) else whole(body.values[v])
        given = [pad(v, p) for v, p in zip(body.inputs, start)]
        return [*given, *(whole(body.values[v]) for v in rest)]

    def body(self, body: Program, start, weights) -> Divided:
        """One pass through a body, where its results may lie anywhere."""
        part = Partition(body, self.mesh, self.inputs(body, start), weights, {})
        part.run()
        return part.made

    def finish(self, outputs: Sequence[Placed | None]) -> None:
        """Moves outputs to where they shall be."""
        program = self.made.program
        for i, place in enumerate(outputs):
            v = program.outputs[i]
            if v is not None and place is not None and self.made.placed[v] != place:
                program.outputs[i] = self.move(v, place)


def _joined(given: Placed, left: Placed) -> Placed:
    """What is carried: as the body leaves it, unless it is on every device."""
    return left if any(left) else given
