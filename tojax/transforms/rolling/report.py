"""What runs as loops, and why other layers do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tojax.jaxprs import JaxprEqn, Literal
from tojax.transforms.rolling.repeats import Program, Repeat, weights
from tojax.transforms.rolling.rolled import Traced
from tojax.transforms.rolling.stacks import name_of

MANY = 12


@dataclass(frozen=True)
class Loop:
    """One loop.

    Attributes:
      rounds: how often.
      equations: of one round.
      weights: names of the stacks.
      ends: why there is no further round.
    """

    rounds: int
    equations: int
    weights: tuple[str, ...]
    ends: str


@dataclass(frozen=True)
class Report:
    """Loops of a call.

    Attributes:
      loops: in the order in which they run.
      products: matrix products and convolutions of the call; those of a loop count every round.
      inside: how many of them are in loops.
      alone: weights of the others.
    """

    loops: tuple[Loop, ...]
    products: int
    inside: int
    alone: tuple[str, ...]

    @classmethod
    def of(cls, found: Traced) -> Report:
        """Of a traced call."""
        program, loops = found.program, found.loops
        names = program.names
        covered = {i for loop in loops for i in range(loop.start, loop.end)}
        outside = [i for i in range(len(program.eqns)) if program.heavy[i] and i not in covered]
        alone = dict.fromkeys(names[v] for i in outside for v in _sources(program, program.eqns[i]))
        total = int(program.heavy.sum())
        told = tuple(_loop(program, loop) for loop in loops)
        return cls(told, total, total - len(outside), (*alone,))

    def __str__(self) -> str:
        count = f"{len(self.loops)} loop{'s' * (len(self.loops) != 1)}"
        lines = [f"{count}, {self.inside} of {self.products} matrix products in loops"]
        for loop in self.loops:
            head = f"  {loop.rounds} rounds of {loop.equations} equations"
            lines.append(f"{head}: {_some(loop.weights)}")
            lines += [f"    ends because {loop.ends}"] * bool(loop.ends)
        lines += [f"  not in a loop: {_some(self.alone)}"] * bool(self.alone)
        return "\n".join(lines)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MANY} more" if len(names) > MANY else ""
    return ", ".join(names[:MANY]) + more


def _loop(program: Program, loop: Repeat) -> Loop:
    found = [name_of([program.names[v] for v in xs]) for xs in weights(program, loop)]
    return Loop(loop.rounds, loop.period, (*found,), _ends(program, loop))


def _ends(program: Program, loop: Repeat) -> str:
    """The first equation after a loop that is not as in a round."""
    for i in range(loop.end, min(loop.end + loop.period, len(program.eqns))):
        if program.numbers[i] != program.numbers[i - loop.period]:
            there, here = program.eqns[i - loop.period], program.eqns[i]
            weight = [program.names[v] for v in _sources(program, here)]
            near = f" at {weight[0]}" if weight else ""
            return f"{_said(here)} is not {_said(there)}{near}"
    return ""


def _said(eqn: JaxprEqn) -> str:
    given = ", ".join(v.aval.str_short(short_dtypes=True) for v in eqn.invars)
    return f"{eqn.primitive.name}({given})"


def _sources(program: Program, eqn: JaxprEqn) -> list[Any]:
    """The weights that an equation takes, casts and the like in between."""
    found, among = [], program.names
    for v in eqn.invars:
        while not isinstance(v, Literal) and v not in among and program.place(v)[0] >= 0:
            maker = program.eqns[program.place(v)[0]]
            if len(maker.invars) != 1:
                break
            v = maker.invars[0]
        if not isinstance(v, Literal) and v in among:
            found.append(v)
    return found
