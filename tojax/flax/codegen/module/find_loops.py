"""Lines that repeat for the modules of a list, as one loop over it."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

from torch import fx

from tojax.flax.codegen.graph.submodule_tree import is_size
from tojax.flax.codegen.module.steps import Step
from tojax.flax.codegen.python.sizes import symbolic

REACH = 400  # steps that a round may have


@dataclass(eq=False)
class Roll:
    """A loop.

    Attributes:
      rounds: its steps, round by round; each does the same with the next module of each list.
      lists: the paths of the lists, each with the place where it begins.
      carries: values that go from round to round: what comes in, what it is in the second round,
        what that makes of it, and what comes out.
      outside: what other rounds than the second read from outside.
    """

    rounds: list[list[Step]]
    lists: dict[str, int]
    carries: list[tuple[fx.Node, fx.Node, fx.Node, fx.Node]]
    outside: list[fx.Node]

    @property
    def second(self) -> list[Step]:
        """The round that is written: what it carries is told from what only comes in."""
        return self.rounds[1]

    def inner(self) -> list[fx.Node]:
        """What the second round reads of itself and of the round before, and hands on."""
        own = {x for step in self.second for x in step.makes}
        own |= {held for _, held, _, _ in self.carries}
        read = [x for step in self.second for x in step.reads if x in own]
        return read + [made for _, _, made, _ in self.carries]


def rolled(steps: list[Step], roles: Any, last: set[fx.Node]) -> list[Step]:
    """The steps, those that repeat as loops."""
    found: list[Step] = []
    i = 0
    while i < len(steps):
        best: Roll | None = None
        for period in _periods(steps, i, roles):
            roll = _Match(steps, i, period, roles, last).roll()
            if roll and (not best or len(roll.rounds) > len(best.rounds)):
                best = roll
        if best is None:
            found.append(steps[i])
            i += 1
        else:
            found.append(_step(best))
            i += sum(map(len, best.rounds))
    return found


def _step(roll: Roll) -> Step:
    own = set(roll.inner())
    entered = [x for step in roll.second for x in step.reads if x not in own]
    reads = entered + [x for x, *_ in roll.carries] + roll.outside
    nodes = [n for steps in roll.rounds for step in steps for n in step.nodes]
    return Step(reads, [end for *_, end in roll.carries], nodes, "layer", None, roll)


def _places(step: Step, roles: Any) -> list[str]:
    """The dotted names that a step reads: its module's, its parameters'."""
    found = [step.block.path] if step.block else []
    return found + [roles[x][1] for x in step.reads if roles.get(x, ("input",))[0] != "input"]


def _periods(steps: list[Step], start: int, roles: Any) -> list[int]:
    """After how many steps the next module of a list may be called, from a step on."""
    found: list[int] = []
    firsts: dict[tuple[str, int, str], int] = {}
    for i, step in enumerate(steps[start : start + REACH]):
        for name in _places(step, roles):
            for home, place, rest in _splits(name):
                before = firsts.get((home, place - 1, rest), i)
                gap = i - before
                if before < gap and gap not in found:
                    found.append(gap)
                firsts.setdefault((home, place, rest), i)
    return found


@functools.cache
def _splits(name: str) -> list[tuple[str, int, str]]:
    """``a.0.b.1`` -> (a, 0, .b.1), (a.0.b, 1, "")."""
    return [
        (name[: m.start()].rstrip("."), int(m[1]), name[m.end() :])
        for m in re.finditer(r"(?:^|(?<=\.))(\d+)(?=\.|$)", name)
    ]


class _Match:
    """Compares rounds of a length with the first."""

    def __init__(self, steps: list[Step], start: int, period: int, roles: Any, last: set[fx.Node]):
        self.steps, self.start, self.period = steps, start, period
        self.roles, self.last = roles, last
        self._forget()

    def _forget(self) -> None:
        self.lists: dict[str, int] = {}  # where each begins
        self.homes: dict[str, str] = {}  # the list through which a name of the first round goes
        self.fixed: set[str] = set()  # names that are the same in each round

    def roll(self) -> Roll | None:
        """As many rounds as there are, two at least."""
        count = 1
        while self._same(count):
            count += 1
        for some in range(count, 1, -1):
            self._forget()  # rounds that are left out say nothing
            if all(map(self._same, range(1, some))) and (found := self._made(some)) is not None:
                return found
        return None

    def round(self, i: int) -> list[Step]:
        begin = self.start + i * self.period
        return self.steps[begin : begin + self.period]

    def _same(self, i: int) -> bool:
        first, other = self.round(0), self.round(i)
        if len(other) < self.period:
            return False
        return all(self._alike(a, b, i) for a, b in zip(first, other))

    def _alike(self, a: Step, b: Step, i: int) -> bool:
        """Whether two steps do the same, one of them ``i`` rounds later."""
        if (a.block is None) != (b.block is None) or len(a.reads) != len(b.reads):
            return False
        if len(a.makes) != len(b.makes) or [x is None for x in a.makes] != [
            x is None for x in b.makes
        ]:
            return False
        if any((x in self.last) != (y in self.last) for x, y in zip(a.makes, b.makes)):
            return False
        if a.block is not None:
            assert b.block is not None
            return type(a.block.module) is type(b.block.module) and self._next(
                a.block.path, b.block.path, i
            )
        return _skeleton(a.node) == _skeleton(b.node)

    def _next(self, a: str, b: str, i: int) -> bool:
        """Whether two names are the same, or those of a list's modules ``i`` places apart."""
        if a == b:
            self.fixed.add(a)
            return True
        mine, theirs = _splits(a), _splits(b)
        for (home, place, rest), (other, later, end) in zip(mine, theirs):
            if (home, rest) == (other, end) and later == place + i:
                begins = self.lists.setdefault(home, place) == place
                return begins and self.homes.setdefault(a, home) == home
        return False

    def _made(self, count: int) -> Roll | None:
        """The loop, if values go through it as they do through one."""
        rounds = [self.round(i) for i in range(count)]
        made = [_makers(steps) for steps in rounds]
        carries: dict[tuple[int, int], fx.Node] = {}
        outside: list[fx.Node] = []
        for i in range(1, count):
            reads = [(a.reads, b.reads) for a, b in zip(rounds[0], rounds[i])]
            for x, y in (pair for one, other in reads for pair in zip(one, other)):
                place = made[i - 1].get(y)
                if y in made[i]:
                    fits = made[0].get(x) == made[i][y]
                elif place is not None:
                    fits = x not in made[0] and carries.setdefault(place, x) is x
                else:
                    fits = not any(y in m for m in made) and self._steady(x, y, i)
                    outside += [y] * (i > 1)
                if not fits:
                    return None
        for one in rounds[0]:
            outside += [x for x in one.reads if x not in made[0] and x not in carries.values()]
        return self._finished(rounds, made, carries, outside)

    def _steady(self, x: fx.Node, y: fx.Node, i: int) -> bool:
        """Whether a value from outside is the same in all rounds, or the next in its list.

        A list that a loop goes through gives each round its own: what is the same is of no such.
        """
        (kind, a), (same, b) = (self.roles.get(n, ("input", "")) for n in (x, y))
        if x is y:
            self.fixed |= {a} if kind != "input" else set()
            return True
        return kind == same != "input" and a != b and self._next(a, b, i)

    def _finished(self, rounds, made, carries, outside) -> Roll | None:
        ends = {made_at: node for node, made_at in made[-1].items()}
        seconds = {made_at: node for node, made_at in made[1].items()}
        firsts = {made_at: node for node, made_at in made[0].items()}
        inside = {n for steps in rounds for step in steps for n in step.nodes}
        leaves = lambda x: any(u not in inside and not is_size(u) for u in x.users)
        for i, values in enumerate(made):
            for x, place in values.items():
                if leaves(x) and not (i == len(rounds) - 1 and place in carries):
                    return None
        found = []
        for place, entering in carries.items():
            if (entering in self.last) != (ends[place] in self.last):
                return None
            found.append((entering, firsts[place], seconds[place], ends[place]))
        shared = {home for name in self.fixed for home, _, _ in _splits(name)}
        if not found or not self.lists or shared & set(self.lists):
            return None
        return Roll(rounds, self.lists, found, outside)


def _makers(steps: list[Step]) -> dict[fx.Node, tuple[int, int]]:
    """Where in a round each value is made: (the step, the place among what it makes)."""
    return {x: (i, k) for i, step in enumerate(steps) for k, x in enumerate(step.makes) if x}


def _skeleton(node: fx.Node) -> Any:
    """What an operator is besides the values it reads."""
    look = lambda n: symbolic(n.meta["val"]) if is_size(n) else "value"
    return (
        str(node.target),
        repr(fx.node.map_arg(node.args, look)),
        repr(fx.node.map_arg(dict(node.kwargs), look)),
    )
