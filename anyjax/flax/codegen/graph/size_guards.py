"""Conditions on sizes by which the author's code branched; other branches are not in the file.

torch.export follows the example, and keeps a guard for each decision of Python code. Its own checks
of sizes (that they fit, how arrays lie in memory) are left to JAX.
"""

from __future__ import annotations

import ast
import functools
import linecache
import operator
import pathlib
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram

from anyjax.flax.codegen.graph.private import symbol_of
from anyjax.flax.codegen.python.sizes import Sizes, unknown

NON_STRICT = {"<": operator.le, ">": operator.ge}
TORCH = pathlib.Path(torch.__file__).parent


@dataclass(frozen=True)
class Condition:
    """A relation of sizes that the example fulfils.

    Attributes:
      relation: the relation, or the value of ``settled``.
      line: the line that asked it.
      settled: the size that has to equal ``relation``, which is then a number or another size.
    """

    relation: Any
    line: str
    settled: Any = None


def conditions(program: ExportedProgram) -> list[Condition]:
    """Returns the conditions of the exported program's Python code."""
    values = [x.meta.get("val") for x in program.graph.nodes if x.op == "placeholder"]
    modes = [x.fake_mode for x in values if hasattr(x, "fake_mode")]
    env: Any = modes[0].shape_env if modes else None
    by_relation: dict[Any, Condition] = {}
    for guard in env.guards if env is not None else ():
        place: Any = guard.sloc.framework_loc
        file = pathlib.Path(getattr(place, "filename", str(TORCH)))
        if not _is_from_python(file, guard.expr):
            continue
        relation = guard.expr.xreplace(env.replacements)
        if place.lineno in padding_lines(str(file)):
            strict = NON_STRICT.get(getattr(relation, "rel_op", ""))
            relation = strict(relation.lhs, relation.rhs) if strict else relation
        line = f"{file.name}:{place.lineno}"
        if relation == True:  # noqa: E712  (sympy's: it settled a size)
            for size in sorted(guard.expr.free_symbols, key=str):
                settled = size.xreplace(env.replacements)
                if settled != size and not unknown(settled):
                    by_relation.setdefault(size, Condition(settled, line, size))
        elif not unknown(relation):
            by_relation.setdefault(relation, Condition(relation, line))
    return list(by_relation.values())


@functools.cache
def padding_lines(path: str) -> set[int]:
    """Returns the lines that test for a short input and then only pad what is missing."""
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except SyntaxError:
        return set()
    return {x.lineno for x in ast.walk(tree) if isinstance(x, ast.If) and _pads(x)}


def _pads(branch: ast.If) -> bool:
    match branch:
        case ast.If(
            test=ast.Compare(left=short, ops=[ast.Lt()], comparators=[long]),
            body=[ast.Assign(targets=[target], value=ast.Call(args=[padded, given]) as call)],
            orelse=[],
        ) if isinstance(given, ast.Tuple):
            missing = ast.BinOp(long, ast.Sub(), short)
            pads = [x for x in map(ast.unparse, given.elts) if x != "0"]
            same = ast.unparse(target) == ast.unparse(padded)
            named = ast.unparse(call.func).rpartition(".")[2] == "pad"
            return named and same and pads == [ast.unparse(missing)] and not call.keywords
    return False


def _is_from_python(file: pathlib.Path, relation: object) -> bool:
    """Returns whether user code tests a relation; torch's own modules only check equality."""
    if TORCH not in file.parents:
        return True
    return TORCH / "nn" in file.parents and getattr(relation, "rel_op", "") != "=="


def size_check(guards: list[Condition], arrays: dict[str, list[Any]]) -> list[ast.stmt]:
    """Returns the statement that refuses inputs of other sizes, if there are conditions.

    Raises:
      NotImplementedError: a condition cannot be written.
    """
    sizes = Sizes(arrays, {}, set())
    sizes.inline = True
    texts: dict[str, str] = {}
    for x in guards:
        for text in _condition_texts(x, sizes, arrays):
            texts.setdefault(text, x.line)
    if not texts:
        return []
    line, *other_lines = dict.fromkeys(texts.values())
    place = line + " and elsewhere" * bool(other_lines)
    message = f"written for other sizes, which decide at {place}"
    test = " and ".join(f"({x})" for x in texts) if len(texts) > 1 else next(iter(texts))
    return ast.parse(f"if not ({test}):\n    raise ValueError({message!r})").body


def _condition_texts(guard: Condition, sizes: Sizes, arrays: dict[str, list[Any]]) -> list[str]:
    """Returns expressions that have to be true."""
    if guard.settled is None:
        return [_condition_text(guard.relation, sizes)]
    places = [(n, i, s) for n, shape in arrays.items() for i, s in enumerate(shape)]
    same = lambda s: isinstance(s, torch.SymInt) and symbol_of(s) == guard.settled
    size = ast.unparse(sizes(guard.relation))
    return [f"{n}.shape[{i}] == {size}" for n, i, s in places if same(s)]


def _condition_text(relation: Any, sizes: Sizes) -> str:
    kind = type(relation).__name__
    if kind in ("And", "Or"):
        return f" {kind.lower()} ".join(f"({_condition_text(x, sizes)})" for x in relation.args)
    if kind == "Not":
        return f"not ({_condition_text(relation.args[0], sizes)})"
    if hasattr(relation, "rel_op"):
        lhs, rhs = (ast.unparse(sizes(x)) for x in (relation.lhs, relation.rhs))
        return f"{lhs} {relation.rel_op} {rhs}"
    raise NotImplementedError(f"a decision by {kind} of sizes")
