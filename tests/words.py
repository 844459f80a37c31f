"""Words of the house: names say what a thing is, docstrings are understood at the first reading."""

from __future__ import annotations

import ast
from collections.abc import Mapping

# Local names that point at a value by how it was come by, where a noun would say what it is.
POINTING = frozenset(
    {"found", "given", "kept", "held", "made", "own", "said", "told", "one", "some", "other"}
    | {"others", "asked", "known", "left", "wanted", "more", "here", "there", "again", "now"}
    | {"before", "after", "took", "taken", "gone", "alone", "apart", "whole", "plain", "part"}
    | {"parts"}
)
# First words of docstrings that must be read twice.
RIDDLES = ("What", "Which", "Whose", "Those", "That")


def measures(files: Mapping[str, str]) -> dict[str, tuple[float, int, float]]:
    """For each part of the package: per cent of assigned names that point, docstrings that begin
    with a riddle, per cent of annotated parameters with ``Any``.
    """
    counts: dict[str, list[int]] = {}
    for path, text in files.items():
        part = path.removeprefix("anyjax/").split("/")[0] if path.count("/") > 1 else "top"
        count = counts.setdefault(part, [0] * 5)
        for node in ast.walk(ast.parse(text)):
            for i, number in enumerate(_counted(node)):
                count[i] += number
    share = lambda some, every: round(100 * some / max(every, 1), 1)
    return {
        part: (share(pointing, names), riddles, share(loose, annotated))
        for part, (pointing, names, riddles, loose, annotated) in counts.items()
    }


def _counted(node: ast.AST) -> tuple[int, int, int, int, int]:
    """(Pointing names, all names, riddles, parameters with Any, annotated parameters)."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id in POINTING, 1, 0, 0, 0
    riddles = loose = annotated = 0
    if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
        first = (ast.get_docstring(node) or " ").partition(" ")[0].strip()
        riddles = first in RIDDLES
    if isinstance(node, ast.FunctionDef):
        arguments = [x.annotation for x in (*node.args.args, *node.args.kwonlyargs)]
        texts = [ast.unparse(x) for x in arguments if x is not None]
        loose, annotated = sum("Any" in x for x in texts), len(texts)
    return 0, 0, riddles, loose, annotated


def allowances(text: str) -> dict[str, tuple[float, int, float]]:
    """The lines of ``tests/expect/words.txt``: part, pointing names, riddles, ``Any``."""
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {
        part: (float(names), int(riddles), float(loose)) for part, names, riddles, loose in lines
    }


def findings(
    measured: Mapping[str, tuple[float, int, float]],
    allowed: Mapping[str, tuple[float, int, float]],
) -> list[str]:
    """Parts with more than their allowance, and allowances that can fall."""
    found = []
    for part in sorted({*measured, *allowed}):
        have, may = measured.get(part, (0.0, 0, 0.0)), allowed.get(part, (0.0, 0, 0.0))
        for what, number, limit, slack in zip(
            ("pointing names, %", "riddles", "Any, %"), have, may, (0.5, 1, 2.0)
        ):
            if number > limit:
                found.append(f"{part}: {what}: {number}, at most {limit}: name what the thing is")
            elif number < limit - slack:
                found.append(f"{part}: {what}: {number}: lower its {limit} in words.txt")
    return found
