"""The directive ``parameters``: an index of all parameters of the pages beside it."""

from __future__ import annotations

import importlib
import inspect
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from docutils.nodes import Node
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

DIRECTIVE = re.compile(r"^\.\. auto(?:function|class|decorator):: (\S+)\n((?:   .*\n)*)", re.M)
MEMBERS = re.compile(r"^   :(?:special-)?members: (.+)$", re.M)
ARRAYS = re.compile(r"ArrayLike|PyTree|ndarray|Tensor\b")
TREES = {"batch", "batches", "samples"}  # of arrays
# As tf2jax and torchax name them, and what frontends write: their own pages list them.
LEFT_OUT = (
    "anyjax.torch.interop.", "anyjax.tensorflow.", "anyjax.torchax.", "anyjax.source.",
    "anyjax.table.",
)  # fmt: skip


def documented(folder: Path) -> dict[str, Any]:
    """Returns the functions and methods that the pages of a folder describe, by name."""
    functions = {}
    for page in sorted(folder.glob("*.md")):
        for name, options in DIRECTIVE.findall(page.read_text(encoding="utf-8")):
            members = ", ".join(MEMBERS.findall(options)).split(", ")
            for path in (name, *(f"{name}.{x}" for x in members if x)):
                value = resolved(path)
                if inspect.isroutine(value) and not path.startswith(LEFT_OUT):
                    functions[path] = value
    return functions


def resolved(path: str) -> Any:
    """Returns what a dotted name of anyjax stands for."""
    value: Any = importlib.import_module("anyjax")
    for name in path.split(".")[1:]:
        value = getattr(value, name, None) or importlib.import_module(f"{value.__name__}.{name}")
    return value


def index(functions: dict[str, Any]) -> dict[str, tuple[bool, list[str]]]:
    """Returns, by parameter, whether it takes arrays of numpy, and the functions that have it."""
    rows: dict[str, tuple[bool, list[str]]] = defaultdict(lambda: (False, []))
    for name, function in functions.items():
        for parameter in inspect.signature(inspect.unwrap(function)).parameters.values():
            if parameter.name in ("self", "cls") or parameter.kind in (
                parameter.VAR_POSITIONAL,
                parameter.VAR_KEYWORD,
            ):
                continue
            arrays, names = rows[parameter.name]
            annotated = ARRAYS.search(str(parameter.annotation)) is not None
            takes = annotated or parameter.name in TREES
            rows[parameter.name] = arrays or takes, [*names, name]
    return dict(sorted(rows.items()))


class Parameters(SphinxDirective):
    """A table: a parameter, whether it takes arrays of numpy, and the functions that have it."""

    def run(self) -> list[Node]:
        """Returns the table, of the pages in this page's folder."""
        lines = ["| parameter | numpy | of |", "| --- | --- | --- |"]
        for name, (arrays, functions) in index(
            documented(Path(self.get_source_info()[0]).parent)
        ).items():
            links = ", ".join(f"{{py:obj}}`{x.removeprefix('anyjax.')} <{x}>`" for x in functions)
            lines.append(f"| `{name}` | {'yes' if arrays else ''} | {links} |")
        return self.parse_text_to_nodes("\n".join(lines))


def setup(app: Sphinx) -> dict[str, bool]:
    """Adds the directive."""
    app.add_directive("parameters", Parameters)
    return {"parallel_read_safe": True}
