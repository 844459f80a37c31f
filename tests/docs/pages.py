"""Python code of the site's pages: blocks, notebooks' cells, and the pairs of `coming-from`.

In docs/coming-from each tab-set is a pair: one tab has the lines for the old project, the tab
"anyjax" the new ones. Blocks above the first tab-set run on both sides, all others on the side of
anyjax. A name that both tabs of a pair assign has the same value on both sides.

``python -m tests.docs.pages PAGE TITLE FILE`` writes the values of the old side, in the environment
of the interpreter that runs it; nothing of anyjax is imported there.
"""

from __future__ import annotations

import ast
import linecache
import pickle
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
NEW = "anyjax"


@dataclass(frozen=True)
class Block:
    """A block of Python code.

    Attributes:
      code: its lines.
      line: the number of its first line.
      pair: which tab-set it is in, from 0; -1 above the first one, None below or between them.
      title: the title of its tab, "" outside of tabs.
    """

    code: str
    line: int
    pair: int | None = None
    title: str = ""


def blocks(text: str) -> list[Block]:
    """Returns the Python blocks and notebook cells of a page, in order."""
    result: list[Block] = []
    pairs, title, inside = 0, "", False
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if line.startswith("::::{tab-set}"):
            pairs, inside = pairs + 1, True
        elif line == "::::":
            inside = False
        elif match := re.fullmatch(r":::\{tab-item\} (.*)", line):
            title = match[1]
        elif line == ":::":
            title = ""
        elif line.startswith("```"):
            end = next(i for i in range(number, len(lines)) if lines[i] == "```")
            body, first = lines[number:end], number + 1
            number = end + 1
            if line not in ("```python", "```{code-cell}", "```{code-cell} python"):
                continue
            options = [x for x in body if re.match(r":\w", x)] if "cell" in line else []
            code = "\n".join(body[len(options) :]) + "\n"
            pair = pairs - 1 if inside else None if pairs else -1
            result.append(Block(code, first, pair, title if inside else ""))
    return result


def run(block: Block, names: dict[str, Any], page: str) -> None:
    """Runs a block, whose source inspect and tracebacks find, as that of a notebook's cell."""
    file = f"<{page}:{block.line}>"
    linecache.cache[file] = len(block.code), None, block.code.splitlines(True), file
    code = compile(block.code, file, "exec")
    exec(code, names)


def assigned(code: str) -> set[str]:
    """Returns the names that a block assigns outside of functions and classes."""
    targets: set[str] = set()
    stack: list[ast.AST] = [*ast.parse(code).body]
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Lambda, ast.comprehension)):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            targets.add(node.id)
        stack += ast.iter_child_nodes(node)
    return targets


def values(page: Path, title: str, new: bool = False) -> dict[tuple[int, str], Any]:
    """Runs one side of a page; returns what each pair assigned, as numpy, by pair and name."""
    names: dict[str, Any] = {"__name__": "__main__"}
    result: dict[tuple[int, str], Any] = {}
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.title == title or block.pair == -1 or (new and block.pair is None):
            run(block, names, str(page))
        if block.title == title and block.pair is not None:
            for name in sorted(x for x in assigned(block.code) if x != "_"):
                value = numbers(names.get(name))
                if value is not None:
                    result[block.pair, name] = value
    return result


def numbers(value: Any) -> Any:
    """Returns a nest of arrays as numpy; None where something in it is no array."""
    if isinstance(value, dict):
        items = {str(k): numbers(x) for k, x in value.items()}
        return None if not items or any(x is None for x in items.values()) else items
    if isinstance(value, (list, tuple)):
        listed = [numbers(x) for x in value]
        return None if not listed or any(x is None for x in listed) else listed
    if isinstance(value, (bool, int, float)):
        return np.asarray(value)
    if hasattr(value, "detach"):
        value = value.detach()
        value = value.jax() if hasattr(value, "jax") else value
    if not hasattr(value, "dtype") or not hasattr(value, "shape") or isinstance(value, type):
        return None
    array = np.asarray(value)
    return array if array.dtype.kind in "biuf" else None


if __name__ == "__main__":
    path, wanted, file = sys.argv[1:]
    Path(file).write_bytes(pickle.dumps(values(Path(path), wanted)))
