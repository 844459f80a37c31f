"""Parts of HTML for notebooks: no scripts, the page's own colours, every text escaped."""

from __future__ import annotations

import html
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anyjax import units

MONO = "font-family:ui-monospace,Menlo,Consolas,monospace;font-size:0.92em"
LINE = "border-bottom:1px solid rgba(128,128,128,0.3)"
MUTED = "opacity:0.7"
MANY = 2000  # arrays of a tree; further ones are counted alone


def div(*parts: str) -> str:
    """Returns parts of a page below each other, as wide as the notebook lets them be."""
    return f'<div style="max-width:100%;overflow-x:auto;line-height:1.5">{"".join(parts)}</div>'


class Markup(str):
    """Text that is HTML already."""


def escaped(x: str) -> str:
    """Returns a text as HTML.

    Example:
      >>> escaped("a < b"), escaped(Markup("<b>b</b>"))
      ('a &lt; b', '<b>b</b>')
    """
    return x if isinstance(x, Markup) else html.escape(x)


def page(title: str, body: str) -> str:
    """Returns a page of its own, dark where the reader's system is."""
    scheme = '<meta name="color-scheme" content="light dark">'
    head = f'<meta charset="utf-8">{scheme}<title>{html.escape(title)}</title>'
    return f'<!doctype html>{head}<body style="font:14px system-ui,sans-serif">{body}'


def bar(width: float, share: float) -> Markup:
    """Returns a bar of so many pixels, filled to a share."""
    style = "display:inline-block;height:10px;background:rgba(128,128,128,0.3)"
    filled = f'<span style="display:block;height:10px;width:{share:.1%};background:#4a86c5"></span>'
    return Markup(f'<span style="{style};width:{width:.0f}px">{filled}</span>')


def line(text: str, remark: str = "") -> str:
    """Returns a line in bold, and a remark."""
    shown = f' <span style="{MUTED}">{html.escape(remark)}</span>' if remark else ""
    return f"<div><strong>{html.escape(text)}</strong>{shown}</div>"


def details(summary: str, remark: str, *parts: str) -> str:
    """Returns parts that are folded below a summary."""
    head = f'<code style="{MONO};background:none;color:inherit">{html.escape(summary)}</code>'
    tail = f' <span style="{MUTED}">{html.escape(remark)}</span>'
    inner = f'<div style="padding-left:1.2em">{"".join(parts)}</div>'
    return f"<details><summary>{head}{tail}</summary>{inner}</details>"


def table(header: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[int] = ()) -> str:
    """Returns a table.

    Args:
      header: a name for each column.
      rows: cells, texts or ``Markup``.
      right: columns of numbers.
    """
    style = lambda i: (
        f"padding:1px 10px;{LINE};text-align:{'right' if i in right else 'left'};"
        "white-space:nowrap;background:none;color:inherit"
    )
    cells = lambda tag, row: "".join(
        f'<{tag} style="{style(i)}">{escaped(x)}</{tag}>' for i, x in enumerate(row)
    )
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    head = f"<thead><tr>{cells('th', header)}</tr></thead>" if any(header) else ""
    return f'<table style="border-collapse:collapse">{head}<tbody>{body}</tbody></table>'


def text(x: str) -> str:
    """Returns lines as they are."""
    style = f"{MONO};background:none;color:inherit;white-space:pre;margin:0;overflow-x:auto"
    return f'<pre style="{style}">{html.escape(x)}</pre>'


@dataclass
class _Branch:
    """Arrays below a step of their names."""

    count: int = 0
    size: float = 0.0
    inner: dict[str, _Branch] = field(default_factory=dict)
    arrays: list[tuple[str, Any]] = field(default_factory=list)


def tree(arrays: Mapping[str, Any]) -> str:
    """Returns arrays as a tree by the steps of their names, folded, with their sizes.

    Args:
      arrays: with shapes and dtypes; the steps of a name are separated by dots, or by slashes where
        there are any.
    """
    root = _Branch()
    for name, x in [*arrays.items()][:MANY]:
        *steps, leaf = name.split("/" if "/" in name else ".")
        branches = [root]
        for step in steps:
            branches.append(branches[-1].inner.setdefault(step, _Branch()))
        for branch in branches:
            branch.count += math.prod(x.shape)
            branch.size += math.prod(x.shape) * x.dtype.itemsize
        branches[-1].arrays.append((leaf, x))
    rest = len(arrays) - MANY
    further = [line("", f"and {rest:,} arrays more")] if rest > 0 else []
    return "".join([*_branches(root), *further])


def _branches(branch: _Branch) -> list[str]:
    """Returns what is inside of a branch; steps with one step inside are one."""
    pieces = []
    if branch.arrays:
        rows = [(name, str([*x.shape]), str(x.dtype)) for name, x in branch.arrays]
        pieces.append(table(("", "", ""), rows))
    for name, inner in branch.inner.items():
        while len(inner.inner) == 1 and not inner.arrays:
            ((step, inner),) = inner.inner.items()
            name = f"{name}.{step}"
        remark = f"{units.count(inner.count)} values, {units.size(inner.size)}"
        pieces.append(details(name, remark, *_branches(inner)))
    return pieces
