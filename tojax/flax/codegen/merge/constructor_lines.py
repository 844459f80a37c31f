"""The lines of a constructor: what each attribute is made with; and code as text."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

from tojax.flax.codegen.graph.submodule_tree import Block
from tojax.flax.codegen.merge.configs import added, passed
from tojax.flax.codegen.merge.shared_class import Class, Instance
from tojax.flax.codegen.module.layers import with_hints, with_path
from tojax.flax.codegen.module.writer import Writer
from tojax.flax.codegen.python.align_lines import first_apart
from tojax.flax.codegen.python.templates import LIST, fill

RETURNED = re.compile(r"(?m)^( *return )(\(.*\))$")


def grouped(fields: dict[str, Any]) -> dict[str, Any]:
    """Dotted names as trees: {"layers": {"0": ..., "1": ...}}."""
    found: dict[str, Any] = {}
    for path, what in fields.items():
        *homes, last = (f"{LIST}.{path}" if path[0].isdigit() else path).split(".")
        inner = found
        for home in homes:
            inner = inner.setdefault(home, {})
        inner[last] = what
    return found


@dataclass
class Lines:
    """Builds the lines of one module."""

    instance: Instance
    class_of: dict[Block, tuple[Class, Instance]]
    writer: Writer

    def dotted(self, path: str) -> str:
        """The name of a module from the outermost."""
        home, path = self.instance.block.path, path.removeprefix(f"{LIST}.")
        return f"{home}.{path}" if home else path

    def all(self, fields: dict[str, Any]) -> dict[str, ast.expr]:
        return {k: self.built(x, k) for k, x in fields.items()}

    def built(self, what: Any, path: str) -> ast.expr:
        """The expression of a field."""
        if isinstance(what, Block):
            return self.call(what, path)
        if not isinstance(what, dict):
            return with_path(what, path)
        if not all(k.isdigit() for k in what):
            named = {k: self.built(x, f"{path}.{k}") for k, x in what.items()}
            return self.writer.style.module_dict(named)
        size = max(map(int, what)) + 1
        parts = [
            self.built(what[str(i)], f"{path}.{i}") if str(i) in what else ast.Constant(None)
            for i in range(size)
        ]
        if self.writer.sequentials.get(self.dotted(path)):
            return self.writer.style.sequential(parts, self.writer, self.dotted(path))
        found: ast.expr = ast.List(parts, ast.Load())
        if len({text(x) for x in parts}) == 1 and size > 1:
            number = with_path(with_hints(size, f"num_{path}"), path, "count")
            found = fill("[one for _ in range(size)]", {"one": parts[0], "size": number})
        elif (one := first_apart(parts)) is not None:
            number = with_path(with_hints(size, f"num_{path}"), path, "count")
            found = fill("[one for i in range(size)]", {"one": one, "size": number})
        return self.writer.style.module_list(found)

    def call(self, block: Block, path: str) -> ast.expr:
        """The construction of a class of this file."""
        whole, instance = self.class_of[block]
        place = whole.instances.index(instance)
        given = {name: values[place] for name, values in whole.parameters.items()}
        args = [with_path(with_hints(x, k), path) for k, x in given.items() if not _is_flag(x)]
        flags = [ast.keyword(k, _flag(x, k, path)) for k, x in given.items() if _is_flag(x)]
        if whole.configured:
            expr, needs = passed(instance.scope.config, instance.needs, self.instance.scope.config)
            added(self.instance.needs, needs)
            args.insert(0, expr)
        return self.writer.style.construct(ast.Call(ast.Name(whole.name, ast.Load()), args, flags))


def _is_flag(value: Any) -> bool:
    return isinstance(value, (bool, str))


def _flag(value: Any, name: str, path: str) -> ast.expr:
    """What tells kinds of a class apart, as an argument by name."""
    found = ast.Constant(value)
    found.hint, found.kind, found.path = name, "argument", path  # type: ignore[attr-defined]
    return found


def text(node: ast.AST) -> str:
    """The code; what is returned together stands without parentheses."""
    found = ast.unparse(ast.fix_missing_locations(node))
    return RETURNED.sub(lambda m: m[1] + _bare(m[2]), found) if "return (" in found else found


def _bare(value: str) -> str:
    """What is returned, without parentheses where it is a tuple of several."""
    match ast.parse(value, mode="eval").body:
        case ast.Tuple(elts=[_, _, *_]):
            return value[1:-1]
    return value
