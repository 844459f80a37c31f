"""``tojax ops``: the table of lowerings, generated."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table


def ops(name: str, markdown: bool) -> None:
    """See ``tojax ops --help``."""
    import tojax.torch  # noqa: F401  (fills the table)
    from tojax.torch.schema import table

    found = (r for r in table.values() if name in r.signature.name)
    rows = sorted(found, key=lambda r: r.signature.name)
    if markdown:
        print("# Torch operators with a lowering\n")
        print(f"{len(rows)} operators. Written by `tojax ops --markdown`.\n")
        print("| operator | lowering |\n| --- | --- |")
        for row in rows:
            print(f"| `{row.signature.name}` | `{home(row.lowering)}` |")
        return
    console = Console(highlight=False)
    shown = Table("operator", "lowering", "arguments")
    for row in rows:
        shown.add_row(row.signature.name, home(row.lowering), ", ".join(row.signature.kept))
    console.print(shown, f"{len(rows)} operators")
    for signature, served in without_row(name):
        console.print(f"\n{signature.text}\n  served by {served}", soft_wrap=True)
        if served == "nothing":
            short = signature.name.partition(".")[2]
            console.print(f"  @tojax.lowers(torch.ops.{signature.name})", soft_wrap=True)
            console.print(f"  def {short.split('.')[0]}({', '.join(signature.kept)}): ...")


def home(function) -> str:
    """Where a lowering is written."""
    module = str(getattr(function, "__module__", "") or "").removeprefix("tojax.torch.")
    module = module.replace("jax._src.", "jax.")
    name = getattr(function, "__name__", str(function))
    if name == "<lambda>":
        return f"{module} line {inspect.getsourcelines(function)[1]}"
    return f"{module}.{name}"


def without_row(name: str) -> Iterator[tuple]:
    """(signature, what serves it) of the overloads of one operator that have no row."""
    import torch
    from torch._decomp import decomposition_table

    from tojax.torch.schema import overloads, read, table

    library, _, short = name.rpartition("::") if "::" in name else name.rpartition(".")
    packet = getattr(getattr(torch.ops, library or "aten"), short, None) if short else None
    for op in overloads(packet) if isinstance(packet, torch._ops.OpOverloadPacket) else ():
        if op not in table:
            composite = op.has_kernel_for_dispatch_key("CompositeImplicitAutograd")
            known = composite or op in decomposition_table
            yield read(op), "torch's own decomposition" if known else "nothing"
