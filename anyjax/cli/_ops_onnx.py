"""``anyjax ops --onnx``: every operator of ONNX and what serves it."""

from __future__ import annotations

from anyjax.cli import _shown
from anyjax.cli._ops import FEW, home, unknown

ENGINE, BODY, NOTHING = "the engine", "the body that ONNX has for it", ""


def ops(name: str, markdown: bool, as_json: bool) -> None:
    """Runs ``anyjax ops --onnx``."""
    with _shown.progress("importing onnx"):
        every = coverage()
    lines = {op: line for op, line in every.items() if name in op}
    if not lines:
        unknown(name, [*every])
    if as_json:
        _shown.as_json(
            [{"op": op, "served": x, "signature": text} for op, (x, text) in lines.items()]
        )
        return
    counted = f"{len(lines)} operators, {sum(bool(x) for x, _ in lines.values())} served."
    if markdown:
        print(f"# ONNX operators\n\n{counted} Written by `anyjax ops --onnx --markdown`.\n")
        print("| operator | served by |\n| --- | --- |")
        for op, (served, _) in lines.items():
            print(f"| `{op}` | {served if served in (ENGINE, BODY, NOTHING) else f'`{served}`'} |")
        return
    console = _shown.console()
    rows = [(op, served) for op, (served, _) in lines.items()]
    console.print(_shown.table(["operator", "served by"], rows), counted, sep="\n")
    for op, (served, text) in lines.items() if len(lines) <= FEW else ():
        console.print(text, markup=False)
        if not served:
            console.print(f'  @anyjax.onnx.lowers("{op}")', markup=False)


def coverage() -> dict[str, tuple[str, str]]:
    """Returns what serves each operator in its newest version, and its signature, by name."""
    import anyjax.onnx  # noqa: F401  (fills the table)
    from anyjax.onnx.core.microsoft import OPERATORS
    from anyjax.onnx.core.running import HANDLERS
    from anyjax.onnx.core.schema import MICROSOFT, key_of, newest, read, row_of
    from anyjax.onnx.engine.missing import served

    lines = {}
    for key in [*newest(), *(f"{MICROSOFT}::{name}" for name in sorted(OPERATORS))]:
        op = key_of(key)
        row = row_of(op)
        way = ENGINE if key in HANDLERS else BODY if served(op) else NOTHING
        way = home(row.lowering).removeprefix("anyjax.onnx.") if row else way
        lines[key] = way, read(op).text
    return lines
