"""``anyjax ops --tensorflow``: every operator of TensorFlow and what serves it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from importlib.resources import files

from anyjax.cli import _shown
from anyjax.cli._ops import FEW, home, unknown

BRIDGE, ENGINE, NOTHING = "TensorFlow's bridge to XLA", "the engine", ""
LEGEND = (
    "Served by a lowering of its own, by the engine (functions, loops, variables, lists), or by "
    "the StableHLO that TensorFlow's bridge to XLA writes for it. What is not numeric "
    "is computed by TensorFlow where all of its inputs are known while tracing."
)


@dataclass(frozen=True)
class Line:
    """One operator of the table."""

    op: str
    kind: str
    served: str
    signature: str


def ops(name: str, markdown: bool, as_json: bool) -> None:
    """Runs ``anyjax ops --tensorflow``."""
    with _shown.progress("importing TensorFlow"):
        every = coverage()
    lines = [line for line in every if name in line.op]
    if not lines:
        unknown(name, [line.op for line in every])
    if as_json:
        _shown.as_json([vars(line) for line in lines])
        return
    counted = summary(lines)
    if markdown:
        print(
            f"# TensorFlow operators\n\n{counted} Written by `anyjax ops --tensorflow --markdown`."
        )
        print(f"\n{LEGEND}\n\n| operator | class | served by |\n| --- | --- | --- |")
        for line in lines:
            way = line.served in (BRIDGE, ENGINE, NOTHING)
            served = line.served if way else f"`{line.served}`"
            print(f"| `{line.op}` | {line.kind} | {served} |")
        return
    console = _shown.console()
    rows = [(line.op, line.kind, line.served) for line in lines]
    shown = _shown.table(["operator", "class", "served by"], rows)
    console.print(shown, counted, LEGEND, sep="\n")
    for line in lines if len(lines) <= FEW else ():
        console.print(line.signature, markup=False)
        if not line.served:
            console.print(f'  @anyjax.tensorflow.lowers("{line.op}")', markup=False)


def summary(lines: list[Line]) -> str:
    """Counts the operators, and the numeric ones by what serves them."""
    numeric = [line for line in lines if line.kind == "numeric"]
    services = (BRIDGE, ENGINE, NOTHING)
    ways = Counter(x.served if x.served in services else "row" for x in numeric)
    return (
        f"{len(lines)} operators, {sum(bool(x.served) for x in lines)} served. Of "
        f"{len(numeric)} numeric ones {ways['row']} have a lowering, {ways[ENGINE]} are the "
        f"engine's, {ways[BRIDGE]} the bridge's, {ways[NOTHING]} are not served."
    )


def coverage() -> list[Line]:
    """Lists the operators of ``tf.raw_ops``, and those that only XLA has."""
    import anyjax.tensorflow  # noqa: F401  (fills the table)
    from anyjax.tensorflow.core.running import HANDLERS
    from anyjax.tensorflow.core.schema import read, table

    classes = json.loads((files("anyjax.tensorflow") / "coverage.json").read_text())
    bridge = {*classes.pop("bridge")}
    kinds = {op: kind for kind, names in classes.items() for op in names}
    lines = []
    for op in sorted({*kinds, *HANDLERS, *(row.signature.name for row in table.values())}):
        row = table.find(op)
        served = home(row.lowering) if row else BRIDGE if op in bridge else NOTHING
        served = ENGINE if op in HANDLERS else served.removeprefix("anyjax.tensorflow.")
        lines.append(Line(op, kinds.get(op, "numeric"), served, read(op).text))
    return lines
