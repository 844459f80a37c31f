"""The kernels of a compiled program, read from its text: what each moves, takes and stands for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from anyjax.parallel.collectives import ARRAY, Traffic, collective_calls, size_of

# Arrays with their layouts: those in memory space 1 are in a TPU's VMEM.
PLACED = re.compile(r"(pred|[a-z]+[0-9]+)[a-z0-9]*\[([0-9,]*)\](\{[^{}]*\})?")

HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
LINE = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = (.*?) ([a-z][a-z\-]*)\((.*)$")
CALLED = re.compile(r"\b(?:calls|body|to_apply|called_computations)=\{?%?([\w.\-]+)")
ROUNDS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
CONDITION = re.compile(r"condition=%?([\w.\-]+)")
NUMBER = re.compile(r"^(\d+)\)")
CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
NAME = re.compile(r'op_name="([^"]*)"')
LEAD = re.compile(r"^(\w+\([^)]*\)/)+|while/body/(closed_call/)?")
FRAME = re.compile(r"stack_frame_id=(\d+)")
CUSTOM = re.compile(r'custom_call_target="([^"]*)"')
ANYJAX = f"{Path(__file__).parents[2]}/"
ENGINES = re.compile(r"-packages/(jax|torch|tensorflow|keras|typer)/|<frozen")
# What stands for no work, or for the work of what it calls.
FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "iota"}
FREE |= {"partition-id", "replica-id", "opt-barrier", "ConcatBitcast"}
FREE |= {"while", "call", "conditional", "async-done", "async-update"}
AHEAD = {"copy-start", "slice-start"}  # to VMEM, before the kernel that reads it there, or back
PARTS = {"dynamic-slice", "gather", "slice"}  # of an operand: they read what they return
UPDATES = {"dynamic-update-slice": 1, "scatter": 2}  # which operand is written into the first one


class Kernel(NamedTuple):
    """A kernel, or several that differ in nothing but the layer.

    Attributes:
      name: the operation that it was made of, and the module that it is in.
      kind: "fusion", "copy", a collective, or the target of a custom call.
      where: the line of the source that asks for it, file:line, "" where that is not known.
      calls: how often it runs in one call of the program.
      bytes: that it reads from memory and writes to it in these calls; a TPU's VMEM is none.
      cycles: of these calls, as a TPU's compiler expects them; 0 elsewhere and of custom kernels.
    """

    name: str
    kind: str
    where: str
    calls: int
    bytes: int
    cycles: int


class Instruction(NamedTuple):
    """A line of a computation."""

    name: str
    op: str
    shape: str
    size: int
    operands: list[str]
    rest: str


@dataclass
class Text:
    """A program's text: its computations, and the tables that its lines point to.

    Attributes:
      computations: instructions by the computation's name.
      entry: name of the first one.
      tables: rows of the tables of files, functions, locations and frames, by their numbers.
    """

    computations: dict[str, list[Instruction]] = field(default_factory=dict)
    entry: str = ""
    tables: dict[str, dict[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> Text:
        """Reads a program."""
        program, block, table = cls(), None, {}
        for line in text.splitlines():
            if head := HEAD.match(line):
                block = program.computations.setdefault(head[2], [])
                program.entry = head[2] if head[1] else program.entry
            elif line == "}":
                block = None
            elif block is not None and (match := LINE.match(line)):
                name, shape, op, rest = match.groups()
                operands = re.findall(r"%([\w.\-]+)", rest.split("), ")[0])
                block.append(Instruction(name, op, shape, _bytes(shape), operands, rest))
            elif re.fullmatch(r"[A-Z]\w+", line):
                table = program.tables.setdefault(line, {})
            elif row := re.match(r"(\d+) (.*)", line):
                table[row[1]] = row[2]
        return program

    def kernels(self) -> list[Kernel]:
        """Returns the kernels, those of loops as often as they run, the heaviest first."""
        totals: dict[tuple, list[int]] = {}
        for x, rounds, sizes in self._each(self.entry, 1):
            custom = CUSTOM.search(x.rest) if x.op == "custom-call" else None
            kind = custom[1] if custom else x.op
            if kind in FREE or kind.endswith("-done"):
                continue
            key = self._named(x), kind, self._where(x)
            if kind in AHEAD and not self._moved(x, sizes):
                continue
            sums = totals.setdefault(key, [0, 0, 0])
            cycles = CYCLES.search(x.rest)
            for i, n in enumerate((1, self._moved(x, sizes), int(cycles[1] if cycles else 0))):
                sums[i] += rounds * n
        every = [Kernel(*key, *sums) for key, sums in totals.items()]
        return sorted(every, key=lambda k: (k.cycles, k.bytes), reverse=True)

    def collectives(self) -> dict[str, Traffic]:
        """Returns the collectives by kind, those of loops as often as they run."""
        traffic: dict[str, Traffic] = {}
        for x, rounds, _ in self._each(self.entry, 1, ("fusion",)):
            for kind, arrays in collective_calls(f"= {x.shape} {x.op}("):
                calls, size = traffic.get(kind, (0, 0))
                size += rounds * sum(size_of(*array) for array in arrays)
                traffic[kind] = Traffic(calls + rounds, size)
        return traffic

    def _each(
        self, computation: str, rounds: int, also: tuple[str, ...] = ()
    ) -> Iterator[tuple[Instruction, int, dict[str, int]]]:
        """Yields the instructions of a computation and of those that it runs, with their number of
        runs and the sizes of what is beside them.
        """
        block = self.computations.get(computation, [])
        sizes = {x.name: x.size for x in block}
        for x in block:
            if x.op in ("while", "call", "conditional", "async-start", *also):
                times = self._rounds(x) if x.op == "while" else 1
                for called in CALLED.findall(x.rest):
                    yield from self._each(called, rounds * times, also)
            if x.op != "async-start":
                yield x, rounds, sizes

    def _rounds(self, x: Instruction) -> int:
        """Returns how often a loop runs; 1 where the program does not tell."""
        if times := ROUNDS.search(x.rest):
            return int(times[1])
        condition = CONDITION.search(x.rest)  # TPUs: a counter is compared with a constant
        block = self.computations.get(condition[1], []) if condition else []
        numbers = {y.name: NUMBER.match(y.rest) for y in block if y.op == "constant"}
        limits = [numbers.get(name) for y in block if y.op == "compare" for name in y.operands]
        counts = [int(n[1]) for n in limits if n]
        return counts[0] if len(counts) == 1 else 1

    def _moved(self, x: Instruction, sizes: dict[str, int]) -> int:
        """Returns the bytes that a kernel reads and writes: of an operand that it takes parts of,
        those; where it writes a part of an array in place, that part.
        """
        if x.op == "slice-start":  # ((what it cuts), the part, a counter)
            return size_of(*ARRAY.findall(x.shape)[1])
        if x.op in PARTS:
            cut = sizes.get(x.operands[0], 1) > 0  # it is in memory
            return x.size + cut * size_of(*ARRAY.findall(x.shape)[0])
        if x.op in UPDATES:
            return 2 * sizes.get(x.operands[UPDATES[x.op]], 0)
        inner = self._called(x)
        if x.op == "copy-start":  # (the copy, the original, a counter)
            return x.size
        if x.op != "fusion" or not inner:
            return x.size + sum(sizes.get(name, 0) for name in x.operands)
        inside = {y.name: y for y in inner}
        total, written = 0, x.size
        for y in inner:
            if y.op in UPDATES and y.size <= written and _is_in_place(y, inside):
                update = inside.get(y.operands[UPDATES[y.op]])
                written += update.size - y.size if update else 0
            if y.op == "parameter":
                total += self._read(y, inner)
        return total + written

    def _called(self, x: Instruction) -> list[Instruction]:
        return self.computations.get((CALLED.search(x.rest) or ["", ""])[1], [])

    def _read(self, parameter: Instruction, inner: list[Instruction]) -> int:
        users = [y for y in inner if parameter.name in y.operands]
        if len(users) == 1 and users[0].op == "fusion":  # inside of this one, which may cut it
            block = self._called(users[0])
            place = f"{users[0].operands.index(parameter.name)})"
            reads = [
                self._read(y, block)
                for y in block
                if y.op == "parameter" and y.rest.startswith(place)
            ]
            return min(parameter.size, *reads) if reads else parameter.size
        first = [y.operands[:1] == [parameter.name] for y in users]
        if users and all(first) and all(y.op in {*PARTS, *UPDATES} for y in users):
            return min(parameter.size, sum(y.size for y in users if y.op in PARTS))
        return parameter.size

    def _named(self, x: Instruction) -> str:
        """Returns the path of a kernel's operation, layers by any number."""
        inner = self._called(x)
        path = NAME.search(x.rest) or next(
            filter(None, (NAME.search(y.rest) for y in reversed(inner))), None
        )
        named = LEAD.sub("", path[1]) if path else x.op
        return re.sub(r"(?<=[./])\d+(?=[./]|$)", "*", named.replace("\\'", "'"))

    def _where(self, x: Instruction) -> str:
        frame = FRAME.search(x.rest)
        number = int(frame[1]) if frame else 0
        frames = self.tables.get("StackFrames", {})
        # XLA prints a parent as one more than it is, so that the first frame is its own.
        shift = 1 if "parent_frame_id=1}" in frames.get("1", "") else 0
        while row := frames.get(str(number)):
            location, parent = re.findall(r"=(\d+)", row)[:2]
            file, _, line = re.findall(r"=(\d+)", self.tables["FileLocations"][location])[:3]
            path = self.tables["FileNames"][file].strip('"')
            if not _is_engine(path):
                return f"{Path(path).name}:{line}"
            number = int(parent) - shift
        return ""


def _is_in_place(x: Instruction, inside: dict[str, Instruction]) -> bool:
    """Returns whether an update is made to an array in memory: a scatter's may be new zeros."""
    base = inside.get(x.operands[0])
    return x.op != "scatter" or (base is not None and base.op == "parameter")


def _bytes(shape: str) -> int:
    return sum(size_of(*x[:2]) for x in PLACED.findall(shape) if "S(1)" not in x[2])


def _is_engine(path: str) -> bool:
    """Returns whether a file is of a library that runs the model's code."""
    return path.startswith(ANYJAX) or ENGINES.search(path) is not None
