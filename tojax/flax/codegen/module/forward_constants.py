"""Numbers of a forward function in the author's terms: ``16`` as ``self.head_dim``.

The graph has them as numbers; the author's line tells where they come from. An expression of that
line is taken if it gives the number for this module.
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import re
from collections.abc import Iterator
from typing import Any

from torch import fx

from tojax.flax.codegen.author.constructors import Constructor
from tojax.flax.codegen.author.evaluate import Reader, Scope, Unknown, field_of, is_number, names_in
from tojax.flax.codegen.author.source_lines import FRAME, class_trees, forward_of
from tojax.flax.codegen.graph.flatten import RESHAPES
from tojax.flax.codegen.graph.functionalize import packet
from tojax.flax.codegen.module.layers import hinted, located
from tojax.flax.codegen.python.sizes import Sizes
from tojax.flax.codegen.python.templates import Swapped

PLAIN = {0, 1, 2, 0.5}  # too common to stand for anything
HALVES = {"aten.slice", "aten.narrow"}
COUNTS = {"aten.split", "aten.chunk", "aten.unbind"}
AXES = {"swapaxes", "transpose", "moveaxis", "squeeze", "expand_dims", "stack"}


class ForwardNumbers:
    """The terms of one module's forward function.

    Attributes:
      fields: what the class has to set for them, by attribute.
    """

    def __init__(self, module: Any, config: Any, fields: dict[str, Any],
                 sizes: Sizes):  # fmt: skip
        self.scope, self.fields = Scope(module, config), fields
        self.sizes = sizes
        function = inspect.unwrap(type(module).forward)
        self.function = Constructor({}, getattr(function, "__globals__", {}))
        bases = [x for x in type(module).__mro__ if "forward" in vars(x)]
        self.forwards = [x for x in map(forward_of, bases) if x is not None]
        for one in self.forwards:
            self.function.note(one.tree)

    def named(self, expr: ast.expr, node: fx.Node) -> ast.expr:
        """The expression, with the author's terms for its numbers."""
        fresh = [x for x in _numbers(expr) if not hasattr(x, "seen")]
        for x in fresh:
            x.seen = True
        if not self.forwards or not fresh:
            return expr
        swap = self._shapes(expr, fresh, node) if packet(node) in RESHAPES else {}
        if packet(node) in RESHAPES:
            swap |= self._kept(expr, [x for x in fresh if id(x) not in swap])
        spelled = lambda x: x.value == 0 or (isinstance(x.value, int) and x.value in PLAIN)
        fresh = [x for x in fresh if not spelled(x) and id(x) not in swap]
        line = _innermost(node)
        literal = {float(x) for x in re.findall(r"\d+\.?\d*(?:[eE][-+]?\d+)?", line)}
        for x in fresh:
            whole = isinstance(x.value, int)
            if whole and x.value in literal:
                continue
            if (term := self.term(x.value, node, x.value in literal)) is not None:
                swap[id(x)] = term
        return Swapped(swap).visit(expr) if swap else expr

    def term(self, value: Any, node: fx.Node, plain: bool) -> ast.expr | None:
        """The first of the author's expressions that gives this number and can be written.

        A ``plain`` number stands in the line itself.
        """
        for said in self._candidates(node):
            if value in PLAIN and not isinstance(said, ast.BinOp) and plain:
                continue
            if (found := self._written(said, value)) is not None:
                return found
        if value in PLAIN or packet(node) in COUNTS:
            return None
        halved = packet(node) in HALVES
        for name in self._attributes():
            said = ast.Attribute(ast.Name("self", ast.Load()), name, ast.Load())
            if (found := self._written(said, value)) is not None:
                return found
            if halved and (found := self._written(said, 2 * value)) is not None:
                return ast.BinOp(found, ast.FloorDiv(), ast.Constant(2))
        return None

    def _shapes(self, expr: ast.expr, fresh: list, node: fx.Node) -> dict[int, ast.expr]:
        """Terms for the sizes of a shape: what the author has in the same place, from behind."""
        method = lambda x: isinstance(x, ast.Call) and isinstance(x.func, ast.Attribute)
        calls: list[Any] = [x for x in self._candidates(node) if method(x)]
        said = [x for x in calls if f"aten.{x.func.attr}" in RESHAPES]
        shapes = [list(_spelled(x.args, self.function.locals)) for x in said]
        swap: dict[int, ast.expr] = {}
        shape_of = (x.args for x in ast.walk(expr) if isinstance(x, ast.Call))
        for args in shape_of:
            for place, x in enumerate(reversed(args), 1):
                if not isinstance(x, ast.Constant) or not any(x is y for y in fresh):
                    continue
                theirs = (shape[-place] for shape in shapes if place <= len(shape))
                terms = (self._written(one, x.value) for one in theirs)
                found = next((term for term in terms if term is not None), None)
                if found is not None:
                    swap[id(x)] = found
        return swap

    def _kept(self, expr: ast.expr, fresh: list) -> dict[int, ast.expr]:
        """Sizes of a shape that an argument has in the same place."""
        args = next((x.args for x in [expr] if isinstance(x, ast.Call)), [])
        shape = args[-1].elts if args and isinstance(args[-1], ast.Tuple) else args
        found = {}
        for place, x in enumerate(shape):
            new = any(x is y for y in fresh) and x.value not in PLAIN  # type: ignore[attr-defined]
            if new and (name := self.sizes.same(place, x.value)):  # type: ignore[attr-defined]
                found[id(x)] = name
        return found

    def _written(self, said: ast.expr, wanted: Any) -> ast.expr | None:
        try:
            value, found = _ForwardReader(self).read(said)
        except Unknown:
            return None
        if not is_number(value) or value != wanted or isinstance(found, ast.Constant):
            return None
        read = names_in(found)
        needed = {}
        for name in (*read.attributes, *read.fields):
            home = self.scope.module if name in read.attributes else self.scope.config
            number = getattr(home, name) if home is self.scope.module else field_of(home, name)
            before = self.fields.get(name)
            same = before is None or getattr(before, "value", None) == number
            if not is_number(number) or not same:
                return None
            needed[name] = before or located(hinted(number, name), name, "self")
        for name in read.parameters:  # a size, from now on
            self.sizes.named(name)
        self.fields |= needed
        return _Kept().visit(found)

    def _candidates(self, node: fx.Node) -> Iterator[ast.expr]:
        """The expressions of the statement, then those of the variables that it reads."""
        trees = [
            x
            for forward in self.forwards
            if (statement := forward.statement(node)) is not None
            for x in ast.walk(forward.tree)
            if isinstance(x, ast.stmt) and x.lineno == statement.line
        ]
        queue: list[tuple[ast.AST, int]] = [(x, 0) for x in trees]
        seen: set[str] = set()
        while queue:
            tree, depth = queue.pop(0)
            for x in ast.walk(tree):
                if isinstance(x, (ast.BinOp, ast.Attribute, ast.Call)):
                    yield x
                elif isinstance(x, ast.Name) and x.id not in seen and depth < 3:
                    seen.add(x.id)
                    queue += [(e, depth + 1) for e in self.function.locals.get(x.id, ())]

    def _attributes(self) -> list[str]:
        """Numbers of the module that its class reads somewhere."""
        mine = vars(self.scope.module)
        return [x for x in _read_by(self.scope.module.__class__) if is_number(mine.get(x))]


class _ForwardReader(Reader):
    """Knows the sizes that the author took of arguments, where they are numbers."""

    def __init__(self, numbers: ForwardNumbers):
        super().__init__(numbers.scope, numbers.function)
        self.sizes = numbers.sizes

    def name(self, name: str) -> tuple[Any, ast.expr]:
        if (value := self.sizes.static(name)) is not None:
            return value, ast.Name(name, ast.Load())
        return super().name(name)


def _spelled(args: list[ast.expr], known: dict[str, list[ast.expr]]) -> Iterator[ast.expr]:
    """A shape's parts, where the author gave them as numbers, a tuple, or a variable of one."""
    for x in args:
        match x:
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                yield from _spelled(elts, known)
            case ast.Name(id=name) if known.get(name) and isinstance(known[name][0], ast.Tuple):
                yield from _spelled(known[name][0].elts, known)  # type: ignore[attr-defined]
            case ast.BinOp(op=ast.Add(), left=left, right=right) if isinstance(right, ast.Tuple):
                yield from _spelled([left, right], known)
            case _:
                yield x


class _Kept(ast.NodeTransformer):
    """``config.x`` is ``self.x`` in a forward function."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name("self", ast.Load()) if node.id == "config" else node


def _numbers(expr: ast.AST) -> Iterator[Any]:
    """Its numbers, but for axes and the places of modules in lists."""
    match expr:
        case ast.Subscript(value=ast.Attribute() | ast.Subscript() as home, slice=ast.Constant()):
            if ast.unparse(home).startswith("self."):
                return
            yield from _numbers(home)
            yield from _numbers(expr.slice)
        case ast.Constant(value=value):
            if is_number(value):
                yield expr
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant()) | ast.Lambda():
            return
        case ast.keyword(arg="axis" | "dim" | "num_classes" | "ndmin"):
            return
        case ast.Call(func=ast.Attribute(attr=name)) if name in AXES:
            yield from _numbers(expr.func)
        case _:
            for x in ast.iter_child_nodes(expr):
                yield from _numbers(x)


def _innermost(node: fx.Node) -> str:
    """The line that made a node."""
    frames = FRAME.findall(node.meta.get("stack_trace") or "")
    return linecache.getline(frames[-1][0], int(frames[-1][1])) if frames else ""


@functools.cache
def _read_by(cls: Any) -> list[str]:
    """The names X of ``self.X`` in a class and its bases, of forward functions first."""
    found: dict[str, None] = {}
    for tree in class_trees(cls):
        parts = [x for x in ast.walk(tree) if isinstance(x, ast.FunctionDef)]
        for part in sorted(parts, key=lambda x: x.name != "forward"):
            found |= dict.fromkeys(names_in(part).attributes)
    return list(found)
