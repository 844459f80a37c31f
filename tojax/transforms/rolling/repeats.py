"""Where the equations of a program repeat, with the same flow of values from round to round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tojax.jaxprs import JaxprEqn, Literal, Var, jaxprs_in_params

HEAVY = {"dot_general", "conv_general_dilated", "ragged_dot", "ragged_dot_general"}
SMALL = 1024  # elements: operands that a few rounds share are copied for each below this
Place = tuple[int, int]  # (equation, result of it)
OUTSIDE = (-1, 0)


class Numbered(list):
    """Things with numbers; ``number`` of one object, or of the same objects, is always the same.

    Example:
      >>> things = Numbered()
      >>> [things.number(x) for x in ("a", "b", "a")], [*things]
      ([0, 1, 0], ['a', 'b'])
    """

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[Any, int] = {}

    def number(self, thing: Any) -> int:
        """Its number; literals have no hash, so identity counts."""
        key = tuple(map(id, thing)) if isinstance(thing, tuple) else id(thing)
        if key not in self.numbers:
            self.numbers[key] = len(self)
            self.append(thing)
        return self.numbers[key]


@dataclass(frozen=True)
class Repeat:
    """``rounds`` times ``period`` equations from ``start`` on, of which one is like the other.

    Attributes:
      carries: what a round takes from the one before, and what the first one takes instead.
      shared: operands that are the same in all rounds.
      own: operands that differ, one for each round.
      wanted: results that other equations use, of any round.
      operands: for each operand of a round's equations where it comes from.
    """

    start: int
    period: int
    rounds: int
    carries: tuple[tuple[Place, Any], ...]
    shared: tuple[Any, ...]
    own: tuple[tuple[Any, ...], ...]
    wanted: tuple[Place, ...]
    operands: tuple[tuple[tuple[str, Any], ...], ...]

    @property
    def end(self) -> int:
        """The equation after the last round."""
        return self.start + self.rounds * self.period


class Program:
    """Equations with numbers for their kinds, where each variable is made, names of weights."""

    def __init__(
        self,
        eqns: Sequence[JaxprEqn],
        numbers: Sequence[int],
        outvars: Sequence[Any],
        names: Mapping[Any, str],
    ):
        self.eqns, self.outvars, self.names = eqns, outvars, names
        self.numbers = np.asarray(numbers, np.int64)
        self.made: dict[Any, Place] = {
            v: (i, k) for i, eqn in enumerate(eqns) for k, v in enumerate(eqn.outvars)
        }
        self.last_use: dict[Any, int] = {}
        for i, eqn in enumerate(eqns):
            self.last_use |= {v: i for v in eqn.invars if isinstance(v, Var)}
        self.last_use |= {v: len(eqns) for v in outvars if isinstance(v, Var)}
        self.heavy = np.array([heavy(eqn) for eqn in eqns], bool)

    def place(self, v: Any) -> Place:
        """Where a variable is made; equation -1 for inputs and literals."""
        return OUTSIDE if isinstance(v, Literal) else self.made.get(v, OUTSIDE)


def heavy(eqn: JaxprEqn) -> bool:
    """Whether it multiplies matrices."""
    if eqn.primitive.name in HEAVY:
        return True
    return any(heavy(e) for jaxpr in jaxprs_in_params(eqn.params) for e in jaxpr.eqns)


def repeats(program: Program, start: int = 0, end: int | None = None) -> list[Repeat]:
    """The longest repeats between two equations, in order."""
    end = len(program.eqns) if end is None else end
    found = _longest(program, start, end)
    if found is None:
        return []
    return [*repeats(program, start, found.start), found, *repeats(program, found.end, end)]


def _longest(program: Program, start: int, end: int) -> Repeat | None:
    numbers = program.numbers[start:end]
    best: Repeat | None = None
    saved = 0
    for bound, period, first, last in _candidates(numbers, program.heavy[start:end]):
        if bound <= saved:
            break
        repeat = _checked(program, period, start + first, start + last)
        if repeat is not None and (repeat.rounds - 1) * period > saved:
            best, saved = repeat, (repeat.rounds - 1) * period
    return best


def _candidates(numbers: np.ndarray, is_heavy: np.ndarray) -> list[tuple[int, int, int, int]]:
    """(Equations saved at most, period, first, last equation), most first. Periods are distances
    of matrix products of one kind.
    """
    distances: Counter[int] = Counter()
    for number in np.unique(numbers[is_heavy]):
        places = np.flatnonzero((numbers == number) & is_heavy)
        gaps = (places[None, :] - places[:, None])[np.triu_indices(len(places), 1)]
        distances.update(gaps[gaps <= len(numbers) // 2].tolist())
    found = []
    for period in distances:
        same = numbers[period:] == numbers[:-period]
        edges = np.flatnonzero(np.diff(np.concatenate([[False], same, [False]])))
        for first, last in zip(edges[::2].tolist(), edges[1::2].tolist()):
            long = last - first
            if long >= period and is_heavy[first:last].any():
                found.append((long // period * period, period, first, last + period))
    return sorted(found, key=lambda x: (-x[0], x[1], x[2]))


def _checked(program: Program, period: int, first: int, last: int) -> Repeat | None:
    """The longest part of these equations that flows alike in all rounds."""
    while last - first >= 2 * period:
        alike = [_alike(program, i, period, first) for i in range(first, last - period)]
        edges = np.flatnonzero(np.diff(np.concatenate([[False], alike, [False]])))
        runs = [(b - a, a, b) for a, b in zip(edges[::2].tolist(), edges[1::2].tolist())]
        _, a, b = max(runs, default=(0, 0, 0), key=lambda run: (run[0], -run[1]))
        if (a, b) == (0, last - first - period):
            break
        first, last = first + a, first + b + period
    rounds = (last - first) // period
    if rounds < 2:
        return None
    turns = [_repeat(program, s, period, rounds) for s in range(first, last - rounds * period + 1)]
    fit = [turn for turn in turns if turn is not None and turn.carries]  # else no layers: q, k, v
    order = lambda r: (len(r.carries), len(r.wanted), _layers(program, r), r.start)
    return min(fit, key=order, default=None)


def _layers(program: Program, repeat: Repeat) -> int:
    """How many layers a round's weights belong to, by what their names differ in."""
    found = set()
    for xs in weights(program, repeat):
        first, second = (program.names[v].split(".") for v in xs[:2])
        found.add(tuple(a for a, b in zip(first, second) if a != b))
    return len(found)


def _alike(program: Program, i: int, period: int, first: int) -> bool:
    """Whether an equation and that of the next round take their operands from places alike."""
    for a, b in zip(program.eqns[i].invars, program.eqns[i + period].invars):
        if isinstance(a, Literal):
            continue  # of one type, see Kinds: values may differ
        (ma, ka), (mb, kb) = program.place(a), program.place(b)
        if a is b:
            if ma >= first:
                return False
        elif ma >= first:
            if (mb, kb) != (ma + period, ka):
                return False
        elif mb >= first and not (i < first + period and mb < first + period):
            return False
    return True


def _repeat(program: Program, start: int, period: int, rounds: int) -> Repeat | None:
    """The repeat that starts here, None where values skip a round."""
    end = start + rounds * period
    carries, shared, own = Numbered(), Numbered(), Numbered()
    places = {  # one object for each place, so that it has one number
        (i, k): (i, k)
        for i, eqn in enumerate(program.eqns[start : start + period])
        for k in range(len(eqn.outvars))
    }
    operands = []
    for i in range(start, start + period):
        sources: list[tuple[str, Any]] = []
        for k, v in enumerate(program.eqns[i].invars):
            turns = tuple(program.eqns[i + r * period].invars[k] for r in range(rounds))
            (maker, out), (before, which) = program.place(v), program.place(turns[1])
            if maker >= start:
                sources.append(("inside", (maker - start, out)))
            elif before >= start + period:
                return None
            elif before >= start:
                sources.append(("carry", carries.number((places[before - start, which], v))))
            elif _all_same(turns):
                sources.append(("shared", shared.number(v)))
            elif any(program.place(x)[0] >= start for x in turns) or _few(turns):
                return None
            else:
                sources.append(("own", own.number(turns)))
        operands.append(tuple(sources))
    made = program.eqns[start : start + period]
    wanted = [
        (i, k)
        for i, eqn in enumerate(made)
        for k in range(len(eqn.outvars))
        if any(
            program.last_use.get(program.eqns[start + r * period + i].outvars[k], -1) >= end
            for r in range(rounds)
        )
    ]
    return Repeat(start, period, rounds, (*carries,), (*shared,), (*own,), (*wanted,), (*operands,))


def _all_same(operands: Sequence[Any]) -> bool:
    if isinstance(operands[0], Literal):
        content = {np.asarray(v.val).tobytes() for v in operands}
        return len(content) == 1
    return all(v is operands[0] for v in operands)


def _few(operands: Sequence[Any]) -> bool:
    """Whether large operands are the same in some of the rounds: a longer period shares them."""
    if isinstance(operands[0], Literal) or operands[0].aval.size <= SMALL:
        return False
    return len({*map(id, operands)}) < len(operands)


def weights(program: Program, repeat: Repeat) -> list[tuple[Any, ...]]:
    """Params and state of which each round has one of its own."""
    varied = [xs for xs in repeat.own if all(isinstance(v, Var) and v in program.names for v in xs)]
    return [xs for xs in varied if len({*xs}) == len(xs)]
