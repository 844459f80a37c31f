"""The lines of a constructor, one for each attribute; and code as text."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

from anyjax.flax.codegen.graph.submodule_tree import Block
from anyjax.flax.codegen.merge.configs import add_fields, config_argument
from anyjax.flax.codegen.merge.shared_class import Class, Instance
from anyjax.flax.codegen.module.layers import with_hints, with_path
from anyjax.flax.codegen.module.writer import Writer
from anyjax.flax.codegen.python.align_lines import first_apart
from anyjax.flax.codegen.python.templates import LIST, fill

RETURNED = re.compile(r"(?m)^( *return )(\(.*\))$")


def as_tree(fields: dict[str, Any]) -> dict[str, Any]:
    """Returns dotted names as a tree: {"layers": {"0": ..., "1": ...}}."""
    tree: dict[str, Any] = {}
    for path, value in fields.items():
        *parents, last = (f"{LIST}.{path}" if path[0].isdigit() else path).split(".")
        inner = tree
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[last] = value
    return tree


@dataclass
class Lines:
    """Builds the lines of one module."""

    instance: Instance
    class_of: dict[Block, tuple[Class, Instance]]
    writer: Writer

    def build(self, value: Any, path: str) -> ast.expr:
        """Returns the expression of a field."""
        if isinstance(value, Block):
            return self.construct(value, path)
        if not isinstance(value, dict):
            return with_path(value, path)
        if not all(k.isdigit() for k in value):
            named = {k: self.build(x, f"{path}.{k}") for k, x in value.items()}
            return self.writer.style.module_dict(named)
        size = max(map(int, value)) + 1
        full_path = self.instance.block.prefix + path.removeprefix(f"{LIST}.")
        is_sequential = self.writer.kinds.sequentials.get(full_path)
        nothing = fill("lambda x: x" if is_sequential else "None", {})  # an Identity
        elements = [
            self.build(value[str(i)], f"{path}.{i}") if str(i) in value else nothing
            for i in range(size)
        ]
        if is_sequential:
            return self.writer.style.sequential(elements, self.writer.kinds, full_path)
        list_expr: ast.expr = ast.List(elements, ast.Load())
        if len({text(x) for x in elements}) == 1 and size > 1:
            number = with_path(with_hints(size, f"num_{path}"), path, "count")
            list_expr = fill("[one for _ in range(size)]", {"one": elements[0], "size": number})
        elif (element := first_apart(elements)) is not None:
            number = with_path(with_hints(size, f"num_{path}"), path, "count")
            list_expr = fill("[one for i in range(size)]", {"one": element, "size": number})
        return self.writer.style.module_list(list_expr)

    def construct(self, block: Block, path: str) -> ast.expr:
        """Returns the construction of a class of this file."""
        cls, instance = self.class_of[block]
        place = cls.instances.index(instance)
        arguments = {name: values[place] for name, values in cls.parameters.items()}
        args = [with_path(with_hints(x, k), path) for k, x in arguments.items() if not _is_flag(x)]
        flags = [ast.keyword(k, _flag(x, k, path)) for k, x in arguments.items() if _is_flag(x)]
        if cls.configured:
            expr, needs = config_argument(
                instance.scope.config, instance.needs, self.instance.scope.config
            )
            add_fields(self.instance.needs, needs)
            args.insert(0, expr)
        return self.writer.style.construct(ast.Call(ast.Name(cls.name, ast.Load()), args, flags))


def _is_flag(value: object) -> bool:
    return isinstance(value, (bool, str))


def _flag(value: Any, name: str, path: str) -> ast.expr:
    """Returns an argument by name that tells kinds of a class apart."""
    flag = ast.Constant(value)
    flag.hint, flag.kind, flag.path = name, "argument", path  # type: ignore[attr-defined]
    return flag


def text(node: ast.AST) -> str:
    """Returns the code; a returned tuple is written without parentheses."""
    code = ast.unparse(ast.fix_missing_locations(node))
    return RETURNED.sub(_without_parentheses, code) if "return (" in code else code


def _without_parentheses(statement: re.Match[str]) -> str:
    """Returns a return statement, without parentheses where the value is a tuple of several."""
    match ast.parse(statement[2], mode="eval").body:
        case ast.Tuple(elts=[_, _, *_]):
            return statement[1] + statement[2][1:-1]
    return statement[0]
