"""The error that names all operators of a model that nothing serves."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from onnx import defs

from anyjax.errors import MissingOps, Unsupported
from anyjax.onnx.core.nodes import Graph
from anyjax.onnx.core.running import HANDLERS
from anyjax.onnx.core.schema import MICROSOFT, Op, row_of, table

CUT = (
    "leave out what they compute: anyjax.from_onnx(file, outputs=[...]), or cut the graph behind "
    "them with onnx.utils.extract_model"
)


def refuse(graph: Graph) -> None:
    """Raises one error for all operators of a graph that nothing serves, if there are any.

    Raises:
      Unsupported: they work on strings.
      MissingOps: they do not.
    """
    missing: dict[Op, list[str]] = defaultdict(list)
    for _, node in graph.each():
        if node.body is None and not served(node.op):
            missing[node.op].append(node.name)
    if not missing:
        return
    nodes = {
        op: f"{', '.join(names[:3])}{', ...' * (len(names) > 3)}" for op, names in missing.items()
    }
    where = f"{graph.name}: {'; '.join(f'{op} ({nodes[op]})' for op in sorted(missing, key=str))}"
    listed = ", ".join(sorted(map(str, missing)))
    if all(map(_of_strings, missing)):
        raise Unsupported(
            f"operators on strings: {listed}",
            where=where,
            why="JAX has arrays of numbers only",
            do=CUT,
        )
    near = sorted({x for op in missing for x in table.like(str(op))})
    raise MissingOps(
        f"{len(missing)} operator{'s' * (len(missing) > 1)} without a lowering: {listed}",
        ops=tuple(map(str, missing)),
        where=where,
        why="anyjax has no row for them, and neither the model nor ONNX a function"
        + (f"; near in name: {', '.join(near)}" if near else ""),
        do=f'declare one: @anyjax.onnx.lowers("{min(map(str, missing))}") above a function of its '
        "inputs and attributes",
    )


def _of_strings(op: Op) -> bool:
    if not op.version or op.domain == MICROSOFT:
        return False
    schema = defs.get_schema(op.name, op.version, op.domain)
    return any(
        x.types and all("string" in kind for kind in x.types)
        for x in (*schema.inputs, *schema.outputs)
    )


def served(op: Op) -> bool:
    """Returns whether a handler, a row or the body of ONNX's own function serves an operator."""
    if not op.version:
        return False
    if str(op) in HANDLERS or row_of(op) is not None:
        return True
    if op.domain == MICROSOFT:
        return False
    schema: Any = defs.get_schema(op.name, op.version, op.domain)
    return schema.has_function or schema.has_context_dependent_function
