"""The file in Flax's nnx: a class for each class of torch, numbers that differ as its arguments."""

from __future__ import annotations

import ast
import copy
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from tojax.flax.codegen.blocks import Block
from tojax.flax.codegen.classes import LIST, Made, Writer
from tojax.flax.codegen.layers import hinted


@dataclass(eq=False)
class Instance:
    """One module: its constructor's lines, and the numbers in them in order."""

    block: Block
    lines: dict[str, ast.expr]
    numbers: list[ast.Constant] = field(default_factory=list)


@dataclass(eq=False)
class Class:
    """What several modules share.

    Attributes:
      name: the class's.
      arguments: the constructor's, each with the places of the numbers that it stands for.
    """

    name: str
    made: Made
    instances: list[Instance]
    arguments: dict[str, list[int]] = field(default_factory=dict)

    def text(self) -> str:
        """The class."""
        instance = copy.deepcopy(self.instances[0].lines)
        numbers = _numbers(instance)
        swap = {id(numbers[i]): name for name, places in self.arguments.items() for i in places}
        lines = [f"self.{name} = {_text(_Named(swap).visit(x))}" for name, x in instance.items()]
        init = "\n".join("        " + x for x in lines) or "        pass"
        given = "".join(f", {name}" for name in self.arguments)
        body = "\n".join(f"        {x}" for s in self.made.body for x in _text(s).splitlines())
        takes = "".join(f", {x}" for x in self.made.parameters)
        return (
            f"class {self.name}(nnx.Module):\n"
            f"    def __init__(self{given}, *, rngs: nnx.Rngs):\n{init}\n\n"
            f"    def __call__(self{takes}):\n{body}\n"
        )


class _Named(ast.NodeTransformer):
    """Puts names in the place of numbers."""

    def __init__(self, names: dict[int, str]):
        self.names = names

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        name = self.names.get(id(node))
        return node if name is None else ast.Name(name, ast.Load())


def classes(writer: Writer, root: Block) -> list[str]:
    """The classes' texts, inner ones first."""
    writer.make(root)
    heights: dict[Block, int] = {}
    _heights(writer, root, heights)
    found: list[Class] = []
    class_of: dict[Block, tuple[Class, Instance]] = {}
    for height in sorted(set(heights.values())):
        groups: dict[Any, list[Instance]] = defaultdict(list)
        for block in (b for b, h in heights.items() if h == height):
            lines = _grouped(writer.make(block).fields)
            instance = Instance(block, {k: _built(x, class_of) for k, x in lines.items()})
            instance.numbers = _numbers(instance.lines)
            groups[_likeness(writer.make(block), instance)].append(instance)
        for instances in groups.values():
            made = writer.make(instances[0].block)
            whole = Class(_free(made.name, found), made, instances)
            whole.arguments = _arguments(instances)
            found.append(whole)
            class_of |= {x.block: (whole, x) for x in instances}
    return [x.text() for x in found]


def _heights(writer: Writer, block: Block, heights: dict[Block, int]) -> int:
    """How many classes lie below each block that is a class."""
    if block not in heights:
        inner = [x for x in writer.make(block).fields.values() if isinstance(x, Block)]
        heights[block] = 1 + max((_heights(writer, x, heights) for x in inner), default=0)
    return heights[block]


def _free(name: str, found: list[Class]) -> str:
    """The name, with a number where another class has it."""
    taken = {x.name for x in found}
    count, free = 1, name
    while free in taken:
        count += 1
        free = f"{name}{count}"
    return free


def _likeness(made: Made, instance: Instance) -> tuple:
    """What modules of one class have in common: all but the numbers."""
    bare = copy.deepcopy(instance.lines)
    swap = _Named({id(x): "number" for x in _numbers(bare)})
    lines = tuple((k, _text(swap.visit(x))) for k, x in bare.items())
    return made.name, tuple(made.parameters), tuple(map(_text, made.body)), lines


def _numbers(lines: dict[str, ast.expr]) -> list[Any]:
    """The numbers that could be arguments, in order."""
    return [x for line in lines.values() for x in ast.walk(line) if hasattr(x, "hint")]


def _arguments(instances: list[Instance]) -> dict[str, list[int]]:
    """The numbers that differ; those that differ alike are one argument."""
    columns: dict[tuple, list[int]] = defaultdict(list)
    for i, values in enumerate(zip(*(x.numbers for x in instances))):
        column = tuple(x.value for x in values)
        if len(set(column)) > 1:
            columns[column].append(i)
    found: dict[str, list[int]] = {}
    for places in columns.values():
        name = instances[0].numbers[places[0]].hint  # type: ignore[attr-defined]
        while name in found:
            name += "_"
        found[name] = places
    return found


def _grouped(fields: dict[str, Any]) -> dict[str, Any]:
    """Dotted names as trees: {"layers": {"0": ..., "1": ...}}."""
    found: dict[str, Any] = {}
    for path, what in fields.items():
        *homes, last = (f"{LIST}.{path}" if path[0].isdigit() else path).split(".")
        inner = found
        for home in homes:
            inner = inner.setdefault(home, {})
        inner[last] = what
    return found


def _built(what: Any, class_of: dict[Block, tuple[Class, Instance]]) -> ast.expr:
    """The expression of a field."""
    if isinstance(what, Block):
        whole, instance = class_of[what]
        values = [
            hinted(instance.numbers[places[0]].value, name)
            for name, places in whole.arguments.items()
        ]
        keyword = ast.keyword("rngs", ast.Name("rngs", ast.Load()))
        return ast.Call(ast.Name(whole.name, ast.Load()), values, [keyword])
    if not isinstance(what, dict):
        return what
    if not all(k.isdigit() for k in what):
        words = [ast.keyword(k, _built(x, class_of)) for k, x in what.items()]
        return ast.Call(ast.parse("nnx.Dict", mode="eval").body, [], words)
    count = max(map(int, what)) + 1
    parts = [
        _built(what[str(i)], class_of) if str(i) in what else ast.Constant(None)
        for i in range(count)
    ]
    same = len({_text(x) for x in parts}) == 1 and count > 1
    found: ast.expr = ast.List(parts, ast.Load())
    if same:
        found = ast.parse(f"[0 for _ in range({count})]", mode="eval").body
        found.elt = parts[0]  # type: ignore[attr-defined]
    return ast.Call(ast.parse("nnx.List", mode="eval").body, [found], [])


def _text(node: ast.AST) -> str:
    return ast.unparse(ast.fix_missing_locations(node))
