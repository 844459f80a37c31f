"""Conditions on sizes by which the author's code took its way; another way is not in the file.

torch.export follows the example, and keeps for each decision of Python what it decided by. What it
asks of sizes itself (that they fit, how arrays lie in memory) is left to JAX.
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

from tojax.flax.codegen.graph.private import symbol_of
from tojax.flax.codegen.python.sizes import Sizes, unknown

OR_EQUAL = {"<": operator.le, ">": operator.ge}
TORCH = pathlib.Path(torch.__file__).parent


@dataclass(frozen=True)
class Condition:
    """A relation of sizes that the example fulfils.

    Attributes:
      relation: of the sizes as they are known.
      line: where it was asked.
      settled: the size that has to be ``relation``, which is a number or another size.
    """

    relation: Any
    line: str
    settled: Any = None


def conditions(program: Any) -> list[Condition]:
    """Those of the exported program's Python code."""
    values = [x.meta.get("val") for x in program.graph.nodes if x.op == "placeholder"]
    modes = [x.fake_mode for x in values if hasattr(x, "fake_mode")]
    env: Any = modes[0].shape_env if modes else None
    found: dict[Any, Condition] = {}
    for guard in env.guards if env is not None else ():
        place: Any = guard.sloc.framework_loc
        file = pathlib.Path(getattr(place, "filename", str(TORCH)))
        if not _asked_in_python(file, guard.expr):
            continue
        relation = guard.expr.xreplace(env.replacements)
        if place.lineno in padding(str(file)):
            strict = OR_EQUAL.get(getattr(relation, "rel_op", ""))
            relation = strict(relation.lhs, relation.rhs) if strict else relation
        line = f"{file.name}:{place.lineno}"
        if relation == True:  # noqa: E712  (sympy's: it settled a size)
            for size in sorted(guard.expr.free_symbols, key=str):
                now = size.xreplace(env.replacements)
                if now != size and not unknown(now):
                    found.setdefault(size, Condition(now, line, size))
        elif not unknown(relation):
            found.setdefault(relation, Condition(relation, line))
    return list(found.values())


@functools.cache
def padding(path: str) -> set[int]:
    """The lines that ask whether something is shorter, and then only pad what is missing: of what
    is as long nothing is.
    """
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
            asked = [x for x in map(ast.unparse, given.elts) if x != "0"]
            same = ast.unparse(target) == ast.unparse(padded)
            named = ast.unparse(call.func).rpartition(".")[2] == "pad"
            return named and same and asked == [ast.unparse(missing)] and not call.keywords
    return False


def _asked_in_python(file: pathlib.Path, relation: Any) -> bool:
    """Whether a line of Python asked it; torch's own modules only ask for equality to check."""
    if TORCH not in file.parents:
        return True
    return TORCH / "nn" in file.parents and getattr(relation, "rel_op", "") != "=="


def check(asked: list[Condition], arrays: dict[str, list[Any]]) -> list[ast.stmt]:
    """The statement that refuses inputs of other sizes, if there is something to ask.

    Raises:
      NotImplementedError: a condition cannot be written.
    """
    sizes = Sizes(arrays, {}, set())
    sizes.inline = True
    texts: dict[str, str] = {}
    for x in asked:
        for text in _texts(x, sizes, arrays):
            texts.setdefault(text, x.line)
    if not texts:
        return []
    line, *more = dict.fromkeys(texts.values())
    message = f"written for other sizes, which decide at {line}{' and elsewhere' * bool(more)}"
    whole = " and ".join(f"({x})" for x in texts) if len(texts) > 1 else next(iter(texts))
    return ast.parse(f"if not ({whole}):\n    raise ValueError({message!r})").body


def _texts(asked: Condition, sizes: Sizes, arrays: dict[str, list[Any]]) -> list[str]:
    """Expressions that have to be true."""
    if asked.settled is None:
        return [_text(asked.relation, sizes)]
    places = [(n, i, s) for n, shape in arrays.items() for i, s in enumerate(shape)]
    same = lambda s: isinstance(s, torch.SymInt) and symbol_of(s) == asked.settled
    wanted = ast.unparse(sizes(asked.relation))
    return [f"{n}.shape[{i}] == {wanted}" for n, i, s in places if same(s)]


def _text(relation: Any, sizes: Sizes) -> str:
    kind = type(relation).__name__
    if kind in ("And", "Or"):
        return f" {kind.lower()} ".join(f"({_text(x, sizes)})" for x in relation.args)
    if kind == "Not":
        return f"not ({_text(relation.args[0], sizes)})"
    if hasattr(relation, "rel_op"):
        left, right = (ast.unparse(sizes(x)) for x in (relation.lhs, relation.rhs))
        return f"{left} {relation.rel_op} {right}"
    raise NotImplementedError(f"a decision by {kind} of sizes")
