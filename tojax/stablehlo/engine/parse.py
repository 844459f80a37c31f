"""MLIR's module, read once into ``Region``s."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from jax.interpreters import mlir
from jax.interpreters.mlir import ir

from tojax.errors import BadCheckpoint, MissingOps
from tojax.stablehlo.core import attributes
from tojax.stablehlo.core.private import hlo_to_stablehlo, mhlo_to_stablehlo, stablehlo
from tojax.stablehlo.core.region import Module, Operation, Region
from tojax.stablehlo.core.schema import overloads, read, table
from tojax.stablehlo.core.types import type_of

RETURNS = {"func.return", "stablehlo.return", "sdy.return"}
RESULTS = {"result", "output", "output_state", "outputs"}
PORTABLE, BYTECODE = b"StableHLO_v", b"ML\xefR"


def parse(source: str | bytes) -> Module:
    """A module from its text, its bytecode, a portable artifact, or an HLO proto.

    Raises:
      BadCheckpoint: it is none of these.
      MissingOps: it has operations that nothing serves.
    """
    context = mlir.make_ir_context()
    context.allow_unregistered_dialects = True
    with context, ir.Location.unknown(context):
        try:
            module = _module(source, context)
        except (ir.MLIRError, TypeError, ValueError, RuntimeError) as error:
            raise BadCheckpoint(
                "this is no StableHLO module",
                why=" ".join(str(error).split())[:300],
                do="pass a module's text or bytecode, a portable artifact, or what jax.export gave",
            ) from error
        return read_module(module)


def _module(source: str | bytes, context: Any) -> Any:
    if isinstance(source, bytes):
        if PORTABLE in source[:64] or b"vhlo" in source:
            return stablehlo.deserialize_portable_artifact(context, source)
        if source[:4] != BYTECODE and not _is_text(source):
            source = hlo_to_stablehlo(source)
    module = ir.Module.parse(source)
    found = [op for op in _every(module.operation) if op.name.startswith("mhlo.")]
    return ir.Module.parse(mhlo_to_stablehlo(source)) if found else module


def _is_text(source: bytes) -> bool:
    """A proto is no text: it has lengths among its names."""
    try:
        return source.decode().replace("\n", " ").replace("\t", " ").isprintable()
    except UnicodeDecodeError:
        return False


def _every(operation: Any) -> Iterator[Any]:
    """The operations inside of one."""
    for region in operation.regions:
        for block in region.blocks:
            for op in block.operations:
                yield op.operation
                yield from _every(op.operation)


def read_module(module: Any) -> Module:
    """An MLIR module of the bindings."""
    reader = _Reader()
    functions: dict[str, Region] = {}
    given: dict[str, dict[int, str]] = {}
    for op in module.body.operations:
        if op.operation.name == "func.func" and len(op.operation.regions[0].blocks):
            function = attributes.value_of(op.attributes["sym_name"])
            functions[function] = reader.region(op.regions[0])
            given[function] = _globals(op)
    if reader.missing:
        names = tuple(sorted(reader.missing))
        raise MissingOps(
            f"no lowering for {', '.join(names)}",
            ops=names,
            where=reader.missing[names[0]],
            why="tojax.stablehlo has no row for them",
            do="add one: @tojax.stablehlo.lowers(name)",
        )
    held = module.operation.attributes
    name = attributes.value_of(held["sym_name"]) if "sym_name" in held else "module"
    return Module(functions, name, given)


def _globals(function: Any) -> dict[int, str]:
    """Arguments that no caller gives, by their place: which platform the module runs on."""
    if "arg_attrs" not in function.attributes:
        return {}
    every = attributes.value_of(function.attributes["arg_attrs"])
    named = {i: x.get("jax.global_constant") for i, x in enumerate(every)}
    return {i: name for i, name in named.items() if name is not None}


class _Reader:
    """Numbers the values of a module while it walks through it."""

    def __init__(self):
        self.numbers: dict[Any, int] = {}
        self.missing: dict[str, str] = {}

    def number(self, value: Any) -> int:
        return self.numbers.setdefault(value, len(self.numbers))

    def region(self, region: Any) -> Region:
        (block,) = region.blocks
        inputs = [self.number(x) for x in block.arguments]
        made = Region(inputs, [type_of(x.type) for x in block.arguments])
        here = {*inputs}
        for op in block.operations:
            if op.operation.name in RETURNS:
                made.outputs = [self.number(x) for x in op.operands]
                used: Iterable[int] = made.outputs
            else:
                made.operations.append(self.operation(op))
                used = made.operations[-1].reads()
                here |= {*made.operations[-1].outputs}
            made.outer += [x for x in dict.fromkeys(used) if x not in here and x not in made.outer]
        made.mark_last_uses()
        return made

    def operation(self, op: Any) -> Operation:
        name = op.operation.name
        types = [type_of(x.type) for x in op.results]
        made = Operation(name, [], [self.number(x) for x in op.results], types, _where(op))
        if name == "stablehlo.constant":
            made.arguments = [("known", attributes.constant(op))]
        elif name in ("func.call", "stablehlo.custom_call"):
            called = op.attributes["callee" if name == "func.call" else "call_target_name"]
            held = {x: attributes.value_of(op.attributes[x]) for x in op.attributes}
            made.arguments = [
                ("known", attributes.value_of(called)),
                ("values", [self.number(x) for x in op.operands]),
                ("known", held),
            ]
        elif name == "stablehlo.composite":
            held = {x: attributes.value_of(op.attributes[x]) for x in op.attributes}
            names = ("name", "composite_attributes", "decomposition")
            made.arguments = [
                ("known", made.types),
                ("values", [self.number(x) for x in op.inputs]),
            ]
            made.arguments += [("known", held.get(x)) for x in names]
        elif not overloads(name) or table.find(name) is None:
            self.missing.setdefault(name, made.where)
        else:
            made.arguments = [self.argument(op, made, p.name) for p in read(name).params]
            if name == "stablehlo.real_dynamic_slice":
                made.arguments += self.sizes(op)
        return made

    def sizes(self, op: Any) -> list[tuple[str, Any]]:
        """What is added to the start of a slice for its limit: known, even where it moves."""
        owner = op.limit_indices.owner
        added = [*owner.operands] if getattr(owner, "name", "") == "stablehlo.add" else []
        others = [x for x in added if x != op.start_indices]
        return [("value", self.number(others[0]))] if len(added) == len(others) + 1 else []

    def argument(self, op: Any, made: Operation, name: str) -> tuple[str, Any]:
        """What one parameter of a lowering stands for."""
        if name in RESULTS:
            return ("known", made.types[0] if len(made.types) == 1 else made.types)
        value = getattr(op, name)
        if value is None or isinstance(value, ir.Attribute):
            return ("known", attributes.value_of(value))
        if isinstance(value, bool):  # of a unit attribute: whether it is there
            return ("known", value)
        if isinstance(value, ir.Value):
            return ("value", self.number(value))
        if isinstance(value, ir.Region):
            return ("region", self.region(value))
        items = list(value)
        if items and isinstance(items[0], ir.Region):
            return ("regions", [self.region(x) for x in items])
        return ("values", [self.number(x) for x in items])


def _where(op: Any) -> str:
    """The location that the module gives for an operation, as short as it can be."""
    text = str(op.location).removeprefix("loc(").removesuffix(")")
    return text if len(text) < 300 else text[:297] + "..."
