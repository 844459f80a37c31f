"""Steps that repeat for the modules of a list, as one loop over it."""

from __future__ import annotations

import functools
import re
from typing import Any

from torch import fx

from anyjax.flax.codegen.graph.submodule_tree import is_size
from anyjax.flax.codegen.module.steps import Loop, Step
from anyjax.flax.codegen.python.sizes import symbolic

Roles = dict[fx.Node, tuple[str, str]]  # as in ``Graph``
MAX_STEPS = 400  # steps that a round may have


def with_loops(steps: list[Step], roles: Roles, last: set[fx.Node]) -> list[Step]:
    """Returns the steps, with those that repeat as loops."""
    looped: list[Step] = []
    i = 0
    while i < len(steps):
        best: Loop | None = None
        for period in _periods(steps, i, roles):
            candidate = _RoundMatcher(steps, i, period, roles, last).loop()
            if candidate and (not best or len(candidate.rounds) > len(best.rounds)):
                best = candidate
        if best is None:
            looped.append(steps[i])
            i += 1
        else:
            looped.append(_loop_step(best))
            i += sum(map(len, best.rounds))
    return looped


def _loop_step(loop: Loop) -> Step:
    inner = set(loop.inner())
    entered = [x for step in loop.written_round for x in step.reads if x not in inner]
    reads = entered + [x for x, *_ in loop.carries] + loop.outside
    nodes = [n for steps in loop.rounds for step in steps for n in step.nodes]
    return Step(reads, [end for *_, end in loop.carries], nodes, "layer", None, loop)


def _dotted_names(step: Step, roles: Roles) -> list[str]:
    """Returns the dotted names that a step reads: of its module and its parameters."""
    names = [step.block.path] if step.block else []
    return names + [roles[x][1] for x in step.reads if roles.get(x, ("input",))[0] != "input"]


def _periods(steps: list[Step], start: int, roles: Roles) -> list[int]:
    """Returns the numbers of steps after which the next module of a list is called."""
    gaps: list[int] = []
    firsts: dict[tuple[str, int, str], int] = {}
    for i, step in enumerate(steps[start : start + MAX_STEPS]):
        for name in _dotted_names(step, roles):
            for home, place, suffix in _splits(name):
                previous = firsts.get((home, place - 1, suffix), i)
                gap = i - previous
                if previous < gap and gap not in gaps:
                    gaps.append(gap)
                firsts.setdefault((home, place, suffix), i)
    return gaps


@functools.cache
def _splits(name: str) -> list[tuple[str, int, str]]:
    """Returns ``(a, 0, .b.1), (a.0.b, 1, "")`` for ``a.0.b.1``."""
    return [
        (name[: m.start()].rstrip("."), int(m[1]), name[m.end() :])
        for m in re.finditer(r"(?:^|(?<=\.))(\d+)(?=\.|$)", name)
    ]


class _RoundMatcher:
    """Compares rounds of one length with the first round."""

    def __init__(
        self, steps: list[Step], start: int, period: int, roles: Roles, last: set[fx.Node]
    ):
        self.steps, self.start, self.period = steps, start, period
        self.roles, self.last = roles, last
        self._reset()

    def _reset(self) -> None:
        self.lists: dict[str, int] = {}  # where each begins
        self.homes: dict[str, str] = {}  # the list through which a name of the first round goes
        self.unchanging: set[str] = set()  # names that are the same in each round

    def loop(self) -> Loop | None:
        """Returns a loop of as many rounds as match, two at least."""
        count = 1
        while self._round_matches(count):
            count += 1
        for num_rounds in range(count, 1, -1):
            self._reset()  # rounds that are left out say nothing
            all_match = all(map(self._round_matches, range(1, num_rounds)))
            if all_match and (loop := self._loop_of(num_rounds)) is not None:
                return loop
        return None

    def round(self, i: int) -> list[Step]:
        """Returns the steps of a round."""
        begin = self.start + i * self.period
        return self.steps[begin : begin + self.period]

    def _round_matches(self, i: int) -> bool:
        first, later = self.round(0), self.round(i)
        if len(later) < self.period:
            return False
        return all(self._steps_match(a, b, i) for a, b in zip(first, later))

    def _steps_match(self, a: Step, b: Step, i: int) -> bool:
        """Returns whether two steps do the same, one of them ``i`` rounds later."""
        if (a.block is None) != (b.block is None) or len(a.reads) != len(b.reads):
            return False
        kind = lambda x: (x is None, x in self.last)
        if [*map(kind, a.makes)] != [*map(kind, b.makes)]:
            return False
        if a.block is not None:
            assert b.block is not None
            return type(a.block.module) is type(b.block.module) and self._names_match(
                a.block.path, b.block.path, i
            )
        return _skeleton(a.node) == _skeleton(b.node)

    def _names_match(self, a: str, b: str, i: int) -> bool:
        """Returns whether two names are equal, or a list's modules ``i`` places apart."""
        if a == b:
            self.unchanging.add(a)
            return True
        a_splits, b_splits = _splits(a), _splits(b)
        for (home, place, suffix), (b_home, b_place, b_suffix) in zip(a_splits, b_splits):
            if (home, suffix) == (b_home, b_suffix) and b_place == place + i:
                begins = self.lists.setdefault(home, place) == place
                return begins and self.homes.setdefault(a, home) == home
        return False

    def _loop_of(self, count: int) -> Loop | None:
        """Returns the loop, if values go from each round to the next only."""
        rounds = [self.round(i) for i in range(count)]
        makers = [_makers(steps) for steps in rounds]
        carries: dict[tuple[int, int], fx.Node] = {}
        outside: list[fx.Node] = []
        for i in range(1, count):
            reads = [(a.reads, b.reads) for a, b in zip(rounds[0], rounds[i])]
            for x, y in (pair for step, later_reads in reads for pair in zip(step, later_reads)):
                place = makers[i - 1].get(y)
                if y in makers[i]:
                    fits = makers[0].get(x) == makers[i][y]
                elif place is not None:
                    fits = x not in makers[0] and carries.setdefault(place, x) is x
                else:
                    fits = not any(y in m for m in makers) and self._steady(x, y, i)
                    outside += [y] * (i > 1)
                if not fits:
                    return None
        for step in rounds[0]:
            outside += [x for x in step.reads if x not in makers[0] and x not in carries.values()]
        return self._complete(rounds, makers, carries, outside)

    def _steady(self, x: fx.Node, y: fx.Node, i: int) -> bool:
        """Returns whether a value from outside is the same in all rounds, or the next of a list.

        It may not be a member of a list that the loop goes through: each round has its own.
        """
        (kind, a), (b_kind, b) = (self.roles.get(n, ("input", "")) for n in (x, y))
        if x is y:
            self.unchanging |= {a} if kind != "input" else set()
            return True
        return kind == b_kind != "input" and a != b and self._names_match(a, b, i)

    def _complete(self, rounds, makers, carries, outside) -> Loop | None:
        by_place = lambda values: {place: node for node, place in values.items()}
        firsts, seconds, ends = map(by_place, (makers[0], makers[1], makers[-1]))
        inside = {n for steps in rounds for step in steps for n in step.nodes}
        escapes = lambda x: any(u not in inside and not is_size(u) for u in x.users)
        for i, values in enumerate(makers):
            for x, place in values.items():
                if escapes(x) and not (i == len(rounds) - 1 and place in carries):
                    return None
        loop_carries = []
        for place, entering in carries.items():
            if (entering in self.last) != (ends[place] in self.last):
                return None
            loop_carries.append((entering, firsts[place], seconds[place], ends[place]))
        shared = {home for name in self.unchanging for home, _, _ in _splits(name)}
        if not loop_carries or not self.lists or shared & set(self.lists):
            return None
        return Loop(rounds, self.lists, loop_carries, outside)


def _makers(steps: list[Step]) -> dict[fx.Node, tuple[int, int]]:
    """Returns where each value is made in a round: (the step, the place among its results)."""
    return {x: (i, k) for i, step in enumerate(steps) for k, x in enumerate(step.makes) if x}


def _skeleton(node: fx.Node) -> Any:
    """Returns an operator without the values that it reads, for comparison."""
    look = lambda n: symbolic(n.meta["val"]) if is_size(n) else "value"
    return (
        str(node.target),
        repr(fx.node.map_arg(node.args, look)),
        repr(fx.node.map_arg(dict(node.kwargs), look)),
    )
