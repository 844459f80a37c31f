"""Several bodies as one: what they share stands alone, the rest under a condition."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from anyjax.flax.codegen.python.syntax import names_stored


class Inseparable(Exception):
    """Raised for bodies that differ where no test tells them apart."""


@dataclass(frozen=True)
class Guard:
    """A condition.

    Attributes:
      yes, no: the test and its contrary, as code.
      holds: for each body, whether the test holds; None where it may or may not.
      of: the variable that it reads; once that is written, the test is void.
    """

    yes: str
    no: str
    holds: Sequence[bool | None]
    join: str = ""


def branched(bodies: list[list[ast.stmt]], tests: list[Guard]) -> list[ast.stmt]:
    """Returns one body that does what each body does where the tests hold as for it.

    Raises:
      Inseparable: no test tells some of them apart.
    """
    return _Branches(bodies, tests).join([*range(len(bodies))], bodies, set())


def text_of(body: list[ast.stmt]) -> str:
    """Returns the code."""
    return "\n".join(map(_text, body))


def _text(statement: ast.stmt) -> str:
    """Returns a statement's text, cached: no statement changes while they are compared."""
    text = getattr(statement, "text", None)
    if text is None:
        text = ast.unparse(ast.fix_missing_locations(statement))
        statement.text = text  # type: ignore[attr-defined]
    return text


@dataclass
class _Branches:
    bodies: list[list[ast.stmt]]
    tests: list[Guard]

    def join(self, who: list[int], parts: list[list[ast.stmt]], stored: set[str]) -> list[ast.stmt]:
        """Joins bodies into one; ``stored`` are the variables written before."""
        texts = [[_text(s) for s in body] for body in parts]
        common = texts[0]
        for other_texts in texts[1:]:
            blocks = difflib.SequenceMatcher(None, common, other_texts, False).get_matching_blocks()
            common = [x for b in blocks for x in common[b.a : b.a + b.size]]
        joined: list[ast.stmt] = []
        places = [0] * len(parts)
        for line in [*common, None]:
            ends = [len(t) if line is None else t.index(line, p) for t, p in zip(texts, places)]
            gaps = [body[p:e] for body, p, e in zip(parts, places, ends)]
            joined += self._join_gap(who, gaps, stored)
            stored = stored | names_stored(*(s for gap in gaps for s in gap))
            if line is not None:
                joined.append(parts[0][ends[0]])
                stored = stored | names_stored(parts[0][ends[0]])
            places = [e + 1 for e in ends]
        return joined

    def _join_gap(
        self, who: list[int], gaps: list[list[ast.stmt]], stored: set[str]
    ) -> list[ast.stmt]:
        """Joins differing lines by the test that gives the shortest text."""
        if len({text_of(x) for x in gaps}) == 1:
            return gaps[0]
        best: list[ast.stmt] | None = None
        for test in self.tests:
            sides = [[i for i, x in enumerate(who) if test.holds[x] is not side]
                     for side in (False, True)]  # fmt: skip
            if not all(0 < len(x) < len(who) for x in sides) or test.join in stored:
                continue
            try:
                pick = lambda xs, side: [xs[i] for i in side]
                yes, no = (self.join(pick(who, x), pick(gaps, x), stored) for x in sides)
            except Inseparable:
                continue
            branch = _if(test, yes, no)
            if best is None or len(text_of(branch)) < len(text_of(best)):
                best = branch
        if best is None:
            raise Inseparable
        return best


def _if(test: Guard, yes: list[ast.stmt], no: list[ast.stmt]) -> list[ast.stmt]:
    """Returns the statement; what follows a return needs no else."""
    if not yes or (no and isinstance(no[-1], ast.Return) and len(no) < len(yes)):
        yes, no, test_text = no, yes, test.no
    else:
        test_text = test.yes
    condition = ast.parse(test_text, mode="eval").body
    if isinstance(yes[-1], ast.Return):
        return [ast.If(condition, yes, []), *no]
    return [ast.If(condition, yes, no)]
