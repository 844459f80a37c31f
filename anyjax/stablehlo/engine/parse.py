"""The parser: reads an MLIR module once into ``Region``s."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from jax.interpreters import mlir
from jax.interpreters.mlir import ir

from anyjax.errors import BadCheckpoint, MissingOps
from anyjax.stablehlo.core import attributes
from anyjax.stablehlo.core.private import hlo_to_stablehlo, mhlo_to_stablehlo, stablehlo
from anyjax.stablehlo.core.region import Module, Operation, Region
from anyjax.stablehlo.core.schema import overloads, read, table
from anyjax.stablehlo.core.types import type_of

RETURNS = {"func.return", "stablehlo.return", "sdy.return"}
RESULTS = {"result", "output", "output_state", "outputs"}
PORTABLE, BYTECODE = b"StableHLO_v", b"ML\xefR"


def parse(source: str | bytes) -> Module:
    """Reads a module from its text, its bytecode, a portable artifact, or an HLO proto.

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


def _module(source: str | bytes, context: ir.Context) -> ir.Module:
    if isinstance(source, bytes):
        if PORTABLE in source[:64] or b"vhlo" in source:
            return stablehlo.deserialize_portable_artifact(context, source)
        if source[:4] != BYTECODE and not _is_text(source):
            source = hlo_to_stablehlo(source)
    module = ir.Module.parse(source)
    has_mhlo = any(op.name.startswith("mhlo.") for op in _every(module.operation))
    return ir.Module.parse(mhlo_to_stablehlo(source)) if has_mhlo else module


def _is_text(source: bytes) -> bool:
    """Returns whether bytes are text; a proto is not, as it has lengths among its names."""
    try:
        return source.decode().replace("\n", " ").replace("\t", " ").isprintable()
    except UnicodeDecodeError:
        return False


def _every(operation: ir.Operation) -> Iterator[ir.Operation]:
    """Yields all operations inside of one."""
    for region in operation.regions:
        for block in region.blocks:
            for op in block.operations:
                yield op.operation
                yield from _every(op.operation)


def read_module(module: ir.Module) -> Module:
    """Reads a module of MLIR's Python bindings."""
    reader = _Reader()
    functions: dict[str, Region] = {}
    globals_of: dict[str, dict[int, str]] = {}
    for op in module.body.operations:
        if op.operation.name == "func.func" and len(op.operation.regions[0].blocks):
            function = attributes.value_of(op.attributes["sym_name"])
            functions[function] = reader.region(op.regions[0])
            globals_of[function] = _globals(op)
    if reader.missing:
        names = tuple(sorted(reader.missing))
        raise MissingOps(
            f"no lowering for {', '.join(names)}",
            ops=names,
            where=reader.missing[names[0]],
            why="anyjax.stablehlo has no row for them",
            do="add one: @anyjax.stablehlo.lowers(name)",
        )
    attrs = module.operation.attributes
    name = attributes.value_of(attrs["sym_name"]) if "sym_name" in attrs else "module"
    return Module(functions, name, globals_of)


def _globals(function: ir.OpView) -> dict[int, str]:
    """Returns the arguments that no caller passes, by place: the index of the platform."""
    if "arg_attrs" not in function.attributes:
        return {}
    every = attributes.value_of(function.attributes["arg_attrs"])
    named = {i: x.get("jax.global_constant") for i, x in enumerate(every)}
    return {i: name for i, name in named.items() if name is not None}


class _Reader:
    """Reads the regions of a module, and numbers its values."""

    def __init__(self):
        self.numbers: dict[Any, int] = {}
        self.missing: dict[str, str] = {}

    def number(self, value: ir.Value) -> int:
        return self.numbers.setdefault(value, len(self.numbers))

    def region(self, region: ir.Region) -> Region:
        (block,) = region.blocks
        inputs = [self.number(x) for x in block.arguments]
        body = Region(inputs, [type_of(x.type) for x in block.arguments])
        local = {*inputs}
        for op in block.operations:
            if op.operation.name in RETURNS:
                body.outputs = [self.number(x) for x in op.operands]
                used: Iterable[int] = body.outputs
            else:
                body.operations.append(self.operation(op))
                used = body.operations[-1].reads()
                local |= {*body.operations[-1].outputs}
            outer = body.outer
            outer += [x for x in dict.fromkeys(used) if x not in local and x not in outer]
        body.mark_last_uses()
        return body

    def operation(self, op: Any) -> Operation:
        name = op.operation.name
        types = [type_of(x.type) for x in op.results]
        operation = Operation(name, [], [self.number(x) for x in op.results], types, _where(op))
        if name == "stablehlo.constant":
            operation.arguments = [("known", attributes.constant(op))]
        elif name in ("func.call", "stablehlo.custom_call"):
            called = op.attributes["callee" if name == "func.call" else "call_target_name"]
            attrs = {x: attributes.value_of(op.attributes[x]) for x in op.attributes}
            operation.arguments = [
                ("known", attributes.value_of(called)),
                ("values", [self.number(x) for x in op.operands]),
                ("known", attrs),
            ]
        elif name == "stablehlo.composite":
            attrs = {x: attributes.value_of(op.attributes[x]) for x in op.attributes}
            names = ("name", "composite_attributes", "decomposition")
            operation.arguments = [
                ("known", operation.types),
                ("values", [self.number(x) for x in op.inputs]),
            ]
            operation.arguments += [("known", attrs.get(x)) for x in names]
        elif not overloads(name) or table.find(name) is None:
            self.missing.setdefault(name, operation.where)
        else:
            operation.arguments = [self.argument(op, operation, p.name) for p in read(name).params]
            if name == "stablehlo.real_dynamic_slice":
                operation.arguments += self.sizes(op)
        return operation

    def sizes(self, op: Any) -> list[tuple[str, Any]]:
        """Reads the number that a slice's limit adds to its start: known, even if both move."""
        owner = op.limit_indices.owner
        terms = [*owner.operands] if getattr(owner, "name", "") == "stablehlo.add" else []
        lengths = [x for x in terms if x != op.start_indices]
        return [("value", self.number(lengths[0]))] if len(terms) == len(lengths) + 1 else []

    def argument(self, op: Any, operation: Operation, name: str) -> tuple[str, Any]:
        """Reads the argument of one parameter of a lowering."""
        if name in RESULTS:
            types = operation.types
            return ("known", types[0] if len(types) == 1 else types)
        value = getattr(op, name)
        if value is None or isinstance(value, ir.Attribute):
            return ("known", attributes.value_of(value))
        if isinstance(value, bool):  # of a unit attribute: its presence
            return ("known", value)
        if isinstance(value, ir.Value):
            return ("value", self.number(value))
        if isinstance(value, ir.Region):
            return ("region", self.region(value))
        items = list(value)
        if items and isinstance(items[0], ir.Region):
            return ("regions", [self.region(x) for x in items])
        return ("values", [self.number(x) for x in items])


def _where(op: ir.OpView) -> str:
    """Returns the location of an operation in the module's words, shortened."""
    text = str(op.location).removeprefix("loc(").removesuffix(")")
    return text if len(text) < 300 else text[:297] + "..."
