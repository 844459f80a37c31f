"""``tojax ops``: the table of lowerings, generated."""

from __future__ import annotations

import inspect

from rich.console import Console
from rich.table import Table


def ops(name: str, markdown: bool) -> None:
    """See ``tojax ops --help``."""
    from tojax.torch.schema import table

    rows = [r for r in table.values() if name in r.signature.name]
    rows.sort(key=lambda r: r.signature.name)
    if markdown:
        print(
            f"# Torch operators with a lowering\n\n"
            f"{len(rows)} operators. Written by `tojax ops --markdown`.\n"
        )
        print("| operator | lowering |\n| --- | --- |")
        for row in rows:
            print(f"| `{row.signature.name}` | `{_home(row.lowering)}` |")
        return
    shown = Table("operator", "lowering", "arguments")
    for row in rows:
        shown.add_row(row.signature.name, _home(row.lowering), ", ".join(row.signature.kept))
    Console().print(shown, f"{len(rows)} operators")


def _home(function) -> str:
    module = (
        str(getattr(function, "__module__", "") or "")
        .removeprefix("tojax.torch.")
        .replace("jax._src.", "jax.")
    )
    name = getattr(function, "__name__", str(function))
    return (
        f"{module} line {inspect.getsourcelines(function)[1]}"
        if name == "<lambda>"
        else f"{module}.{name}"
    )
