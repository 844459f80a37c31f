"""The tables of operators: what serves each one of torch, TensorFlow and ONNX."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files

BRIDGE, ENGINE = "TensorFlow's bridge to XLA", "the engine"
BODY, NOTHING = "the body that ONNX has for it", ""
MODES = {"values": "forward", "grad": "grad", "jvp": "jvp", "vmap": "vmap"}
SIGNS = {"ok": "yes", "eager": "outside jit", "error": "error", "wrong": "differs", None: ""}
OF_TORCH = (
    "forward, grad, jvp and vmap: torch's operator database in float32 under jit. Outside jit: the "
    "result's shape depends on values. Differs: from torch, which may be at "
    "fault itself; the reasons stand in tests/expect. Empty: the database has no such case."
)
OF_TENSORFLOW = (
    "Served by a lowering of its own, by the engine (functions, loops, variables, lists), or by "
    "the StableHLO that TensorFlow's bridge to XLA writes for it. What is not numeric "
    "is computed by TensorFlow where all of its inputs are known while tracing."
)


@dataclass(frozen=True)
class Line:
    """An operator, and what serves it.

    Attributes:
      about: the line by name, for JSON.
      kind: its class, in TensorFlow.
      results: of torch's own suite, by mode.
      stub: a line that declares a lowering of it, where it has none.
    """

    op: str
    served: str
    about: dict[str, str | None]
    signature: str | None
    kind: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    stub: str = ""

    def cells(self) -> list[str]:
        """Returns the cells of the row."""
        return [self.op, *self.kind, self.served, *self.results]

    def in_markdown(self) -> list[str]:
        """Returns the cells with names as code."""
        is_name = self.served not in (BRIDGE, ENGINE, BODY, NOTHING)
        served = f"`{self.served}`" if is_name else self.served
        return [f"`{self.op}`", *self.kind, served, *self.results]


@dataclass(frozen=True)
class Listing:
    """The operators of a framework.

    Attributes:
      counted: counts some lines, in a sentence.
      further: overloads of a name that are in no line, as texts.
    """

    header: list[str]
    lines: list[Line]
    counted: Callable[[list[Line]], str]
    legend: str = ""
    further: Callable[[str], list[str]] = lambda name: []


def home(function: object) -> str:
    """Returns the place of a lowering in the code: its function, or the one that makes it; of a
    lambda the file.
    """
    module = str(getattr(function, "__module__", "") or "")
    for package in ("torch", "tensorflow", "onnx"):
        module = module.removeprefix(f"anyjax.{package}.")
    module = module.replace("jax._src.", "jax.")
    name = getattr(function, "__qualname__", getattr(function, "__name__", str(function)))
    name = name.partition(".<locals>")[0]
    return module if name == "<lambda>" else f"{module}.{name}"


def torch() -> Listing:
    """Lists all overloads with a row, and the operators of torch's database without one."""
    from anyjax.torch.core.schema import table
    from anyjax.torch.lowering import gradients

    results = json.loads((files("anyjax.torch") / "coverage.json").read_text())
    rows = {row.signature.name: row for row in table.values()}
    of_jax = {str(op): f"derivative of {forward}" for op, forward in gradients.derivatives()}
    short = {op: op.split(".")[1] for op in (*rows, *of_jax)}
    rest = {*results} - {*short.values()}
    short |= {f"aten.{name}": name for name in rest}
    lines = []
    for op, name in sorted(short.items()):
        served = home(rows[op].lowering) if op in rows else of_jax.get(op, "decomposition")
        text = rows[op].signature.text if op in rows else None
        codes = {mode: results.get(name, {}).get(key) for key, mode in MODES.items()}
        about = {"operator": op, "served by": served, "signature": text, **codes}
        lines.append(Line(op, served, about, text, results=tuple(SIGNS[x] for x in codes.values())))
    counted = lambda lines: (
        f"{len(lines)} operators, {sum(x.signature is not None for x in lines)} with a lowering "
        "of their own."
    )
    header = ["operator", "served by", *MODES.values()]
    return Listing(header, lines, counted, OF_TORCH, lambda name: [*_without_row(name)])


def _without_row(name: str) -> Iterator[str]:
    """Yields texts about an operator's overloads without a row."""
    import torch

    from anyjax.torch.core import private
    from anyjax.torch.core.schema import overloads, read, table

    library, _, short = name.rpartition("::") if "::" in name else name.rpartition(".")
    packet = getattr(getattr(torch.ops, library or "aten"), short, None) if short else None
    for op in overloads(packet) if isinstance(packet, private.OpOverloadPacket) else ():
        if op in table:
            continue
        signature, composite = read(op), op.has_kernel_for_dispatch_key("CompositeImplicitAutograd")
        if composite or op in private.decompositions:
            yield f"\n{signature.text}\n  served by torch's own decomposition"
            continue
        function = signature.name.partition(".")[2].split(".")[0]
        yield (
            f"\n{signature.text}\n  served by nothing\n  @anyjax.lowers(torch.ops.{signature.name})"
            f"\n  def {function}({', '.join(signature.kept)}): ..."
        )


def _line(framework: str, op: str, served: str, signature: str, *kind: str) -> Line:
    """Returns an operator of TensorFlow or ONNX, with a stub where nothing serves it."""
    about: dict[str, str | None]
    about = {"op": op, **dict(zip(("kind",), kind)), "served": served, "signature": signature}
    stub = "" if served else f'  @anyjax.{framework}.lowers("{op}")'
    return Line(op, served, about, signature, kind, stub=stub)


def tensorflow() -> Listing:
    """Lists the operators of ``tf.raw_ops``, and those that only XLA has."""
    from anyjax.tensorflow.core.running import HANDLERS
    from anyjax.tensorflow.core.schema import read, table

    classes = json.loads((files("anyjax.tensorflow") / "coverage.json").read_text())
    bridge = {*classes.pop("bridge")}
    kinds = {op: kind for kind, names in classes.items() for op in names}
    lines = []
    for op in sorted({*kinds, *HANDLERS, *(row.signature.name for row in table.values())}):
        row = table.find(op)
        served = home(row.lowering) if row else BRIDGE if op in bridge else NOTHING
        served = ENGINE if op in HANDLERS else served
        lines.append(_line("tensorflow", op, served, read(op).text, kinds.get(op, "numeric")))
    return Listing(["operator", "class", "served by"], lines, _counted_numeric, OF_TENSORFLOW)


def _counted_numeric(lines: list[Line]) -> str:
    """Counts the operators, and the numeric ones by what serves them."""
    numeric = [line for line in lines if line.kind == ("numeric",)]
    services = (BRIDGE, ENGINE, NOTHING)
    ways = Counter(x.served if x.served in services else "row" for x in numeric)
    return (
        f"{_counted_served(lines)} Of "
        f"{len(numeric)} numeric ones {ways['row']} have a lowering, {ways[ENGINE]} are the "
        f"engine's, {ways[BRIDGE]} the bridge's, {ways[NOTHING]} are not served."
    )


def _counted_served(lines: list[Line]) -> str:
    return f"{len(lines)} operators, {sum(bool(x.served) for x in lines)} served."


def onnx() -> Listing:
    """Lists the operators in their newest versions, and Microsoft's."""
    from anyjax.onnx.core.microsoft import OPERATORS
    from anyjax.onnx.core.running import HANDLERS
    from anyjax.onnx.core.schema import MICROSOFT, key_of, newest, read, row_of
    from anyjax.onnx.engine.missing import served

    lines = []
    for key in [*newest(), *(f"{MICROSOFT}::{name}" for name in sorted(OPERATORS))]:
        op = key_of(key)
        row = row_of(op)
        way = ENGINE if key in HANDLERS else BODY if served(op) else NOTHING
        lines.append(_line("onnx", key, home(row.lowering) if row else way, read(op).text))
    return Listing(["operator", "served by"], lines, _counted_served)
