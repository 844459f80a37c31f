"""``anyjax ops``: every torch operator, how it is served and what torch's own suite says of it."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, NoReturn

from anyjax.cli import _shown
from anyjax.cli._codes import ExitCode

MODES = {"values": "forward", "grad": "grad", "jvp": "jvp", "vmap": "vmap"}
SIGNS = {"ok": "yes", "eager": "outside jit", "error": "error", "wrong": "differs", None: ""}
FEW = 12  # operators whose schemas are printed, too
LEGEND = (
    "forward, grad, jvp and vmap: torch's operator database in float32 under jit. Outside jit: the "
    "result's shape depends on values. Differs: from torch, which may be at "
    "fault itself; the reasons stand in tests/expect. Empty: the database has no such case."
)


@dataclass(frozen=True)
class Line:
    """One operator of the table."""

    op: str
    served: str
    signature: Any
    results: dict[str, str]

    def cells(self) -> list[str]:
        """Returns the cells of the row."""
        return [self.op, self.served, *(SIGNS[self.results.get(m)] for m in MODES)]


def ops(name: str, markdown: bool, as_json: bool) -> None:
    """Runs ``anyjax ops``."""
    with _shown.progress("importing torch"):
        every = coverage()
    lines = [line for line in every if name in line.op]
    if not lines and not [*without_row(name)]:
        unknown(name, [line.op for line in every])
    if as_json:
        _shown.as_json([_told(line) for line in lines])
        return
    rows = sum(line.signature is not None for line in lines)
    count = f"{len(lines)} operators, {rows} with a lowering of their own"
    header = ["operator", "served by", *MODES.values()]
    if markdown:
        print(f"# Torch operators\n\n{count}. Written by `anyjax ops --markdown`.\n\n{LEGEND}\n")
        print("| " + " | ".join(header) + " |\n|" + " --- |" * len(header))
        for line in lines:
            op, served, *rest = line.cells()
            print(f"| `{op}` | `{served}` | " + " | ".join(rest) + " |")
        return
    _show(name, lines, header, count)


def _told(line: Line) -> dict[str, Any]:
    results = {mode: line.results.get(key) for key, mode in MODES.items()}
    text = line.signature.text if line.signature else None
    return {"operator": line.op, "served by": line.served, "signature": text, **results}


def _show(name: str, lines: list[Line], header: list[str], count: str) -> None:
    """Prints the table, and the schemas of a few."""
    console = _shown.console()
    shown = _shown.table(header, [line.cells() for line in lines])
    console.print(shown, count, LEGEND, sep="\n")
    if len(lines) <= FEW:
        for line in filter(lambda line: line.signature, lines):
            console.print(line.signature.text, markup=False)
    for signature, served in without_row(name):
        console.print(f"\n{signature.text}\n  served by {served}", markup=False)
        if served == "nothing":
            short = signature.name.partition(".")[2]
            console.print(f"  @anyjax.lowers(torch.ops.{signature.name})")
            console.print(f"  def {short.split('.')[0]}({', '.join(signature.kept)}): ...")


def unknown(name: str, known: list[str]) -> NoReturn:
    """Ends with exit code 2, after the nearest names."""
    shorts = {x.removeprefix("aten.").partition(".")[0].lower(): x for x in reversed(known)}
    near = [shorts[x] for x in difflib.get_close_matches(name.lower(), shorts, 5, 0.6)]
    suggestion = f"; near are {', '.join(near)}" if near else ""
    print(f"error: no operator has {name!r} in its name{suggestion}", file=sys.stderr)
    sys.exit(ExitCode.USAGE)


def coverage() -> list[Line]:
    """Lists all overloads with a row, and the operators of torch's database without one."""
    import anyjax.torch  # noqa: F401  (fills the table)
    from anyjax.torch.core.schema import table

    results = json.loads((files("anyjax.torch") / "coverage.json").read_text())
    short = lambda name: name.split(".")[1]
    lines = [
        Line(row.signature.name, home(row.lowering), row.signature, results.get(short(name), {}))
        for row in table.values()
        for name in [row.signature.name]
    ]
    covered = {short(line.op) for line in lines}
    lines += [
        Line(f"aten.{op}", "decomposition", None, modes)
        for op, modes in results.items()
        if op not in covered
    ]
    return sorted(lines, key=lambda line: line.op)


def home(function) -> str:
    """Returns the place of a lowering in the code: its function, or the one that makes it; of a
    lambda the file.
    """
    module = str(getattr(function, "__module__", "") or "").removeprefix("anyjax.torch.")
    module = module.replace("jax._src.", "jax.")
    name = getattr(function, "__qualname__", getattr(function, "__name__", str(function)))
    name = name.partition(".<locals>")[0]
    return module if name == "<lambda>" else f"{module}.{name}"


def without_row(name: str) -> Iterator[tuple]:
    """Yields (signature, what serves it) of an operator's overloads without a row."""
    import torch

    from anyjax.torch.core import private
    from anyjax.torch.core.schema import overloads, read, table

    library, _, short = name.rpartition("::") if "::" in name else name.rpartition(".")
    packet = getattr(getattr(torch.ops, library or "aten"), short, None) if short else None
    for op in overloads(packet) if isinstance(packet, private.OpOverloadPacket) else ():
        if op not in table:
            composite = op.has_kernel_for_dispatch_key("CompositeImplicitAutograd")
            decomposed = composite or op in private.decompositions
            yield read(op), "torch's own decomposition" if decomposed else "nothing"
