"""Several bodies as one: what they share stands alone, the rest under a condition."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Sequence
from dataclasses import dataclass


class Inseparable(Exception):
    """Bodies that differ where no test tells them apart."""


@dataclass(frozen=True)
class Guard:
    """A condition.

    Attributes:
      yes, no: it and its contrary.
      holds: for each body, whether it does; None where it may or may not.
      of: the variable that it reads; after something is stored in that, it says nothing.
    """

    yes: str
    no: str
    holds: Sequence[bool | None]
    of: str = ""


def branched(bodies: list[list[ast.stmt]], tests: list[Guard]) -> list[ast.stmt]:
    """A body that does, where the tests hold as for one of these, what that one does.

    Raises:
      Inseparable: no test tells some of them apart.
    """
    return _Branches(bodies, tests).of([*range(len(bodies))], bodies, set())


def text_of(body: list[ast.stmt]) -> str:
    """The code."""
    return "\n".join(map(_text, body))


def _text(statement: ast.stmt) -> str:
    """That of a statement, which nothing changes as long as statements are compared."""
    found = getattr(statement, "text", None)
    if found is None:
        found = ast.unparse(ast.fix_missing_locations(statement))
        statement.text = found  # type: ignore[attr-defined]
    return found


@dataclass
class _Branches:
    bodies: list[list[ast.stmt]]
    tests: list[Guard]

    def of(self, who: list[int], parts: list[list[ast.stmt]], stored: set[str]) -> list[ast.stmt]:
        """Parts of these bodies as one; ``stored`` was written to before."""
        texts = [[_text(s) for s in part] for part in parts]
        common = texts[0]
        for other in texts[1:]:
            blocks = difflib.SequenceMatcher(None, common, other, False).get_matching_blocks()
            common = [x for b in blocks for x in common[b.a : b.a + b.size]]
        found: list[ast.stmt] = []
        places = [0] * len(parts)
        for said in [*common, None]:
            ends = [len(t) if said is None else t.index(said, p) for t, p in zip(texts, places)]
            gaps = [part[p:e] for part, p, e in zip(parts, places, ends)]
            found += self.gap(who, gaps, stored)
            stored = stored | {n for gap in gaps for s in gap for n in _stores(s)}
            if said is not None:
                found.append(parts[0][ends[0]])
                stored = stored | _stores(parts[0][ends[0]])
            places = [e + 1 for e in ends]
        return found

    def gap(self, who: list[int], gaps: list[list[ast.stmt]], stored: set[str]) -> list[ast.stmt]:
        """What differs, by the test that leaves the least to say."""
        if len({text_of(x) for x in gaps}) == 1:
            return gaps[0]
        best: list[ast.stmt] | None = None
        for test in self.tests:
            sides = [[i for i, x in enumerate(who) if test.holds[x] is not side]
                     for side in (False, True)]  # fmt: skip
            if not all(0 < len(x) < len(who) for x in sides) or test.of in stored:
                continue
            try:
                yes, no = (
                    self.of([who[i] for i in x], [gaps[i] for i in x], stored) for x in sides
                )
            except Inseparable:
                continue
            found = _if(test, yes, no)
            if best is None or len(text_of(found)) < len(text_of(best)):
                best = found
        if best is None:
            raise Inseparable
        return best


def _if(test: Guard, yes: list[ast.stmt], no: list[ast.stmt]) -> list[ast.stmt]:
    """The statement; what follows a return needs no else."""
    if not yes or (no and isinstance(no[-1], ast.Return) and len(no) < len(yes)):
        yes, no, said = no, yes, test.no
    else:
        said = test.yes
    condition = ast.parse(said, mode="eval").body
    if isinstance(yes[-1], ast.Return):
        return [ast.If(condition, yes, []), *no]
    return [ast.If(condition, yes, no)]


def _stores(statement: ast.stmt) -> set[str]:
    names = (x for x in ast.walk(statement) if isinstance(x, ast.Name))
    return {x.id for x in names if isinstance(x.ctx, ast.Store)}
