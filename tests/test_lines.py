"""Lines of code of each folder are at most those of tests/expect/lines.json, which only fall.

``python -m tests.test_lines`` writes the figures, and refuses where the sum would rise: a folder
may grow by what others lose. A feature that users did not have may cost lines:
``python -m tests.test_lines "what they can do now"`` writes those, and the commit says so. Blank
lines, comments, imports and docstrings cost nothing, so that there is nothing to win by longer
functions and fewer words.
"""

import ast
import json
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILE = ROOT / "tests" / "expect" / "lines.json"
SLACK = 0.02  # a folder may be this much below its figure before that has to fall
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(text: str) -> int:
    """Counts the lines without blank ones, comments, imports and docstrings."""
    free: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        is_import = isinstance(node, (ast.Import, ast.ImportFrom))
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node, is_import = node.body[0], True
        if is_import:
            free.update(range(node.lineno, node.end_lineno + 1))
    lines = (line.strip() for line in text.splitlines())
    return sum(bool(x) and x[0] != "#" and i not in free for i, x in enumerate(lines, 1))


def counted() -> dict[str, int]:
    """Returns the lines of code by folder."""
    counts: Counter[str] = Counter()
    for path in (ROOT / "anyjax").rglob("*.py"):
        counts[path.parent.relative_to(ROOT).as_posix()] += code_lines(path.read_text("utf-8"))
    return dict(sorted(counts.items()))


def complaints(counts: dict[str, int], allowed: dict[str, int]) -> list[str]:
    """Returns folders above their figures, and figures that can fall."""
    lines = []
    for folder in sorted({*counts, *allowed}):
        number, limit = counts.get(folder, 0), allowed.get(folder, 0)
        if number > limit:
            lines.append(f"{folder}: {number} lines of code, at most {limit}")
        elif number < limit * (1 - SLACK):
            lines.append(f"{folder}: {number} instead of {limit}: python -m tests.test_lines")
    return lines


def test_lines():
    assert complaints(counted(), json.loads(FILE.read_text())) == []


def test_more_and_less_than_the_figures():
    allowed = {"a": 100, "b": 100}
    assert complaints({"a": 100, "b": 99}, allowed) == []
    assert len(complaints({"a": 101, "b": 90}, allowed)) == 2
    assert complaints({"a": 100, "b": 100, "c": 1}, allowed) == ["c: 1 lines of code, at most 0"]


def test_what_counts():
    text = '"""Doc."""\n\nimport a\nfrom b import (\n    c,\n)\n\n\n# why\nclass D:\n    """D."""\n'
    assert code_lines(text) == 1
    assert code_lines(f"{text}    x = 1  # why\n    y = '''\n    z'''\n") == 4


def main() -> None:
    counts = counted()
    before = sum(json.loads(FILE.read_text()).values()) if FILE.exists() else None
    if before is not None and sum(counts.values()) > before and not sys.argv[1:]:
        sys.exit(f"{sum(counts.values())} lines of code, {before} before: they only fall")
    FILE.write_text(json.dumps(counts, indent=0) + "\n")


if __name__ == "__main__":
    main()
