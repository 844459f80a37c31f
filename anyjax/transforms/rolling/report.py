"""A report of the layers that run as loops, and why others do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anyjax import html_text
from anyjax.jaxprs import JaxprEqn, Literal, Var
from anyjax.transforms.rolling.repeats import Program, Repeat, weights
from anyjax.transforms.rolling.rolled import TracedCall
from anyjax.transforms.rolling.stacks import name_of

MAX_NAMES = 12


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
    """The loops of a call.

    Attributes:
      loops: in the order in which they run.
      products: matrix products and convolutions of the call; in a loop every round counts.
      inside: how many of them are in loops.
      alone: weights of products outside of loops.
    """

    loops: tuple[Loop, ...]
    products: int
    inside: int
    alone: tuple[str, ...]

    @classmethod
    def of_call(cls, call: TracedCall) -> Report:
        """Returns the report of a traced call."""
        program, loops = call.program, call.loops
        names = program.names
        covered = {i for loop in loops for i in range(loop.start, loop.end)}
        outside = [i for i in range(len(program.eqns)) if program.heavy[i] and i not in covered]
        weights = (names[v] for i in outside for v in _weights_of(program, program.eqns[i]))
        total = int(program.heavy.sum())
        return cls(
            loops=tuple(_loop(program, loop) for loop in loops),
            products=total,
            inside=total - len(outside),
            alone=tuple(dict.fromkeys(weights)),
        )

    def __str__(self) -> str:
        count = f"{len(self.loops)} loop{'s' * (len(self.loops) != 1)}"
        lines = [f"{count}, {self.inside} of {self.products} matrix products in loops"]
        for loop in self.loops:
            head = f"  {loop.rounds} rounds of {loop.equations} equations"
            lines.append(f"{head}: {_shortened(loop.weights)}")
            lines += [f"    ends because {loop.ends}"] * bool(loop.ends)
        lines += [f"  not in a loop: {_shortened(self.alone)}"] * bool(self.alone)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        header = "rounds", "equations of a round", "stacked weights", "ends because"
        rows = [
            (str(x.rounds), str(x.equations), _shortened(x.weights), x.ends) for x in self.loops
        ]
        pieces = [html_text.line(str(self).partition("\n")[0])]
        pieces += [html_text.table(header, rows, right=(0, 1))] * bool(rows)
        if self.alone:
            names = html_text.text("\n".join(self.alone))
            pieces.append(html_text.details("not in a loop", f"{len(self.alone)} weights", names))
        return html_text.div(*pieces)


def _shortened(names: Sequence[str]) -> str:
    suffix = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + suffix


def _loop(program: Program, loop: Repeat) -> Loop:
    names = [name_of([program.names[v] for v in xs]) for xs in weights(program, loop)]
    return Loop(loop.rounds, loop.period, (*names,), _why_it_ends(program, loop))


def _why_it_ends(program: Program, loop: Repeat) -> str:
    """Describes the first equation after a loop that differs from that of a round."""
    for i in range(loop.end, min(loop.end + loop.period, len(program.eqns))):
        if program.numbers[i] != program.numbers[i - loop.period]:
            eqn, expected = program.eqns[i], program.eqns[i - loop.period]
            names = [program.names[v] for v in _weights_of(program, eqn)]
            place = f" at {names[0]}" if names else ""
            return f"{_shown(eqn)} is not {_shown(expected)}{place}"
    return ""


def _shown(eqn: JaxprEqn) -> str:
    operands = ", ".join(v.aval.str_short(short_dtypes=True) for v in eqn.invars)
    return f"{eqn.primitive.name}({operands})"


def _weights_of(program: Program, eqn: JaxprEqn) -> list[Var]:
    """Returns the weights that an equation takes, also through casts and other unary operations."""
    variables = []
    for v in eqn.invars:
        while not isinstance(v, Literal) and v not in program.names and program.place(v)[0] >= 0:
            producer = program.eqns[program.place(v)[0]]
            if len(producer.invars) != 1:
                break
            v = producer.invars[0]
        if not isinstance(v, Literal) and v in program.names:
            variables.append(v)
    return variables
