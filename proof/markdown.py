"""Markdown of the pages: tables, code, and cells that link to a list of reasons."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence


class Reasons:
    """Reasons of a page: a target for each text, with the names that have it."""

    def __init__(self, prefix: str):
        self.prefix = prefix
        self.names: dict[str, dict[str, list[str]]] = {}

    def link(self, shown: str, text: str, name: str, mode: str) -> str:
        """Returns a cell that links to its reason."""
        modes = self.names.setdefault(text, defaultdict(list))
        modes[mode].append(name)
        return f"[{shown}](#{self.prefix}-{list(self.names).index(text) + 1})"

    def page(self) -> str:
        """Returns the list of the reasons."""
        return "\n\n".join(
            f"({self.prefix}-{i})=\n{i}. {code(text)}\n{_uses(modes)}"
            for i, (text, modes) in enumerate(self.names.items(), 1)
        )


def _uses(modes: dict[str, list[str]]) -> str:
    """Returns a list of what has a reason: names by mode, modes with the same names together."""
    by_names: dict[str, list[str]] = defaultdict(list)
    for mode, names in modes.items():
        by_names[", ".join(names)].append(mode)
    return "\n".join(f"   - {', '.join(modes)}: {names}" for names, modes in by_names.items())


def code(text: str) -> str:
    """Returns a text as code in a line of Markdown."""
    return f"`{text.replace('`', chr(39))}`"


def table(head: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """Returns a table in Markdown."""
    rule = ["---"] * len(head)
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in (head, rule, *lines))


def kind(cell: str) -> str:
    """Returns "ok", "no", "n/a", or nothing for a check that was not run."""
    return cell.partition(":")[0]
