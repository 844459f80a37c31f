"""Repeats in the equations of a program, with the same flow of values from round to round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anyjax.jaxprs import JaxprEqn, Literal, Var, jaxprs_in_params

HEAVY = {"dot_general", "conv_general_dilated", "ragged_dot", "ragged_dot_general"}
SMALL = 1024  # elements: larger operands are not copied for rounds that share them
Place = tuple[int, int]  # (number of an equation, number of its result)
OUTSIDE = (-1, 0)


class Numbered(list):
    """A list of objects that gives each a number; the same object, or tuple of objects, has one.

    Example:
      >>> things = Numbered()
      >>> [things.number(x) for x in ("a", "b", "a")], [*things]
      ([0, 1, 0], ['a', 'b'])
    """

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[Any, int] = {}

    def number(self, thing: object) -> int:
        """Returns the number of an object; by identity, because literals have no hash."""
        key = tuple(map(id, thing)) if isinstance(thing, tuple) else id(thing)
        if key not in self.numbers:
            self.numbers[key] = len(self)
            self.append(thing)
        return self.numbers[key]


@dataclass(frozen=True)
class Repeat:
    """Equal rounds of ``period`` equations from ``start`` on.

    Attributes:
      carries: (what it is after a round, operand of the first round instead): a result of the
        round; or the number of another carry, whose value comes a round later, as a scheduler's
        outputs of several steps ago.
      shared: operands that are the same in all rounds.
      varying: operands that differ, one for each round.
      results: results that later equations use, of any round.
      operands: for each operand of a round's equations where it comes from.
    """

    start: int
    period: int
    rounds: int
    carries: tuple[tuple[Place | int, Any], ...]
    shared: tuple[Any, ...]
    varying: tuple[tuple[Any, ...], ...]
    results: tuple[Place, ...]
    operands: tuple[tuple[tuple[str, Any], ...], ...]

    @property
    def end(self) -> int:
        """The equation after the last round."""
        return self.start + self.rounds * self.period


class Program:
    """Equations with a number for each one's kind, the places of variables, names of weights."""

    def __init__(
        self,
        eqns: Sequence[JaxprEqn],
        numbers: Sequence[int],
        outvars: Sequence[Var | Literal],
        names: Mapping[Var, str],
    ):
        self.eqns, self.outvars, self.names = eqns, outvars, names
        self.numbers = np.asarray(numbers, np.int64)
        self.places: dict[Any, Place] = {
            v: (i, k) for i, eqn in enumerate(eqns) for k, v in enumerate(eqn.outvars)
        }
        self.last_use: dict[Any, int] = {}
        for i, eqn in enumerate(eqns):
            self.last_use |= {v: i for v in eqn.invars if isinstance(v, Var)}
        self.last_use |= {v: len(eqns) for v in outvars if isinstance(v, Var)}
        self.heavy = np.array([heavy(eqn) for eqn in eqns], bool)

    def place(self, v: Var | Literal) -> Place:
        """Returns the place that computes a variable; equation -1 for inputs and literals."""
        return OUTSIDE if isinstance(v, Literal) else self.places.get(v, OUTSIDE)


def heavy(eqn: JaxprEqn) -> bool:
    """Returns True if an equation multiplies matrices."""
    if eqn.primitive.name in HEAVY:
        return True
    return any(heavy(e) for jaxpr in jaxprs_in_params(eqn.params) for e in jaxpr.eqns)


def repeats(program: Program, start: int = 0, end: int | None = None) -> list[Repeat]:
    """Returns the longest repeats between two equations, in order."""
    end = len(program.eqns) if end is None else end
    longest = _longest(program, start, end)
    if longest is None:
        return []
    return [*repeats(program, start, longest.start), longest, *repeats(program, longest.end, end)]


def _longest(program: Program, start: int, end: int) -> Repeat | None:
    numbers = program.numbers[start:end]
    best: Repeat | None = None
    saved = 0
    for bound, period, first, last in _candidates(numbers, program.heavy[start:end]):
        if bound <= saved:
            break
        repeat = _consistent(program, period, start + first, start + last)
        if repeat is not None and (repeat.rounds - 1) * period > saved:
            best, saved = repeat, (repeat.rounds - 1) * period
    return best


def _candidates(numbers: np.ndarray, is_heavy: np.ndarray) -> list[tuple[int, int, int, int]]:
    """Returns (upper bound of saved equations, period, first, last equation), largest first.
    Periods are distances between matrix products of the same kind.
    """
    distances: Counter[int] = Counter()
    for number in np.unique(numbers[is_heavy]):
        places = np.flatnonzero((numbers == number) & is_heavy)
        gaps = (places[None, :] - places[:, None])[np.triu_indices(len(places), 1)]
        distances.update(gaps[gaps <= len(numbers) // 2].tolist())
    candidates = []
    for period in distances:
        same = numbers[period:] == numbers[:-period]
        edges = np.flatnonzero(np.diff(np.concatenate([[False], same, [False]])))
        for first, last in zip(edges[::2].tolist(), edges[1::2].tolist()):
            length = last - first
            if length >= period and is_heavy[first:last].any():
                candidates.append((length // period * period, period, first, last + period))
    return sorted(candidates, key=lambda x: (-x[0], x[1], x[2]))


def _consistent(program: Program, period: int, first: int, last: int) -> Repeat | None:
    """Returns the longest repeat inside of these equations with the same flow in all rounds."""
    while last - first >= 2 * period:
        same = [_same_flow(program, i, period, first) for i in range(first, last - period)]
        edges = np.flatnonzero(np.diff(np.concatenate([[False], same, [False]])))
        runs = [(b - a, a, b) for a, b in zip(edges[::2].tolist(), edges[1::2].tolist())]
        _, a, b = max(runs, default=(0, 0, 0), key=lambda run: (run[0], -run[1]))
        if (a, b) == (0, last - first - period):
            break
        first, last = first + a, first + b + period
    rounds = (last - first) // period
    if rounds < 2:
        return None
    starts = range(first, last - rounds * period + 1)
    repeats = [_repeat_at(program, start, period, rounds) for start in starts]
    # without carries the rounds are no layers, but such as q, k, v
    layers = [repeat for repeat in repeats if repeat is not None and repeat.carries]
    order = lambda r: (len(r.carries), len(r.results), _layers(program, r), r.start)
    return min(layers, key=order, default=None)


def _layers(program: Program, repeat: Repeat) -> int:
    """Counts the layers that a round's weights belong to, by the numbers in their names."""
    layers = set()
    for xs in weights(program, repeat):
        first, second = (program.names[v].split(".") for v in xs[:2])
        layers.add(tuple(a for a, b in zip(first, second) if a != b))
    return len(layers)


def _same_flow(program: Program, i: int, period: int, first: int) -> bool:
    """Returns True if an equation and its counterpart in the next round take their operands from
    corresponding places.
    """
    for a, b in zip(program.eqns[i].invars, program.eqns[i + period].invars):
        if isinstance(a, Literal):
            continue  # of the same type, see Kinds: values may differ
        (eqn_a, result_a), (eqn_b, result_b) = program.place(a), program.place(b)
        if a is b:
            if eqn_a >= first:
                return False
        elif eqn_a >= first:
            if (eqn_b, result_b) != (eqn_a + period, result_a):
                return False
        elif eqn_b >= first + period:
            return False  # first rounds may have operands of their own, until one has the first's
    return True


def _repeat_at(program: Program, start: int, period: int, rounds: int) -> Repeat | None:
    """Returns the repeat that starts here, None if the flow of values is another one."""
    end = start + rounds * period
    carries, shared, varying = Numbered(), Numbered(), Numbered()
    places = {  # one object for each place, so that it has one number
        (i, k): (i, k)
        for i, eqn in enumerate(program.eqns[start : start + period])
        for k in range(len(eqn.outvars))
    }
    operands = []
    for i in range(start, start + period):
        sources: list[tuple[str, Any]] = []
        for k, v in enumerate(program.eqns[i].invars):
            by_round = tuple(program.eqns[i + r * period].invars[k] for r in range(rounds))
            inside = (r for r, x in enumerate(by_round) if program.place(x)[0] >= start)
            delay = next(inside, None)  # the round that takes a result of the first one
            eqn, result = program.place(by_round[delay or 0])
            if delay == 0:
                sources.append(("inside", (eqn - start, result)))
            elif delay is not None and eqn >= start + period:
                return None
            elif delay is not None:
                chain = places[eqn - start, result], *by_round[:delay][::-1]
                links = [carries.number(chain[: n + 2]) for n in range(delay)]
                sources.append(("carry", links[-1]))
            elif _all_same(by_round):
                sources.append(("shared", shared.number(v)))
            elif _partly_shared(by_round):
                return None
            else:
                sources.append(("varying", varying.number(by_round)))
        operands.append(tuple(sources))
    used_later = lambda i, k: any(
        program.last_use.get(program.eqns[start + r * period + i].outvars[k], -1) >= end
        for r in range(rounds)
    )
    return Repeat(
        start=start,
        period=period,
        rounds=rounds,
        carries=tuple(
            (chain[0] if len(chain) == 2 else carries.number(chain[:-1]), chain[-1])
            for chain in carries
        ),
        shared=(*shared,),
        varying=(*varying,),
        results=tuple(place for place in places if used_later(*place)),
        operands=(*operands,),
    )


def _all_same(operands: Sequence[Var | Literal]) -> bool:
    literals = [v for v in operands if isinstance(v, Literal)]
    if literals:
        return len({np.asarray(v.val).tobytes() for v in literals}) == 1
    return all(v is operands[0] for v in operands)


def _partly_shared(operands: Sequence[Any]) -> bool:
    """Returns True if some rounds share a large operand; then a longer period should be tried."""
    if isinstance(operands[0], Literal) or operands[0].aval.size <= SMALL:
        return False
    return len({*map(id, operands)}) < len(operands)


def weights(program: Program, repeat: Repeat) -> list[tuple[Any, ...]]:
    """Returns params and state that every round has its own of, by round."""
    is_weight = lambda v: isinstance(v, Var) and v in program.names
    return [xs for xs in repeat.varying if all(map(is_weight, xs)) and len({*xs}) == len(xs)]
