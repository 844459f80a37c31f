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

import torch
from torch import fx

from anyjax.flax.codegen.author.constructors import Constructor
from anyjax.flax.codegen.author.evaluate import (
    NotExpressible,
    Reader,
    Scope,
    field_of,
    is_number,
    names_in,
)
from anyjax.flax.codegen.author.source_lines import class_trees, forward_of, frames_of
from anyjax.flax.codegen.graph.flatten import RESHAPES
from anyjax.flax.codegen.graph.functionalize import packet
from anyjax.flax.codegen.module.class_code import Field
from anyjax.flax.codegen.module.layers import with_hints, with_path
from anyjax.flax.codegen.python.sizes import Sizes
from anyjax.flax.codegen.python.syntax import name_of, replaced, replaced_by_id

COMMON = {0, 1, 2, 0.5}  # too common to stand for anything
HALVES = {"aten.slice", "aten.narrow"}
COUNTS = {"aten.split", "aten.chunk", "aten.unbind"}
AXES = {"swapaxes", "transpose", "moveaxis", "squeeze", "expand_dims", "stack"}


class ForwardNumbers:
    """The author's terms for the numbers in one module's ``forward``.

    Attributes:
      fields: the fields that the class has to set for them, by attribute.
    """

    def __init__(self, module: torch.nn.Module, config: Any, fields: dict[str, Field],
                 sizes: Sizes):  # fmt: skip
        self.scope, self.fields = Scope(module, config), fields
        self.sizes = sizes
        function = inspect.unwrap(type(module).forward)
        self.function = Constructor({}, getattr(function, "__globals__", {}))
        bases = [x for x in type(module).__mro__ if "forward" in vars(x)]
        self.forwards = [x for x in map(forward_of, bases) if x is not None]
        for forward in self.forwards:
            self.function.record(forward.tree)

    def name_numbers(self, expr: ast.expr, node: fx.Node) -> ast.expr:
        """Returns the expression with the author's terms for its numbers."""
        fresh = [x for x in _numbers(expr) if not hasattr(x, "seen")]
        for x in fresh:
            x.seen = True
        if not self.forwards or not fresh:
            return expr
        swap = self._shape_terms(expr, fresh, node) if packet(node) in RESHAPES else {}
        if packet(node) in RESHAPES:
            swap |= self._argument_sizes(expr, [x for x in fresh if id(x) not in swap])
        is_common = lambda x: x.value == 0 or (isinstance(x.value, int) and x.value in COMMON)
        fresh = [x for x in fresh if not is_common(x) and id(x) not in swap]
        line = linecache.getline(*frames[-1]) if (frames := frames_of(node)) else ""
        literal = {float(x) for x in re.findall(r"\d+\.?\d*(?:[eE][-+]?\d+)?", line)}
        for x in fresh:
            is_integer = isinstance(x.value, int)
            if is_integer and x.value in literal:
                continue
            if (term := self.term_for(x.value, node, x.value in literal)) is not None:
                swap[id(x)] = term
        return replaced_by_id(expr, swap)

    def term_for(self, value: float, node: fx.Node, in_line: bool) -> ast.expr | None:
        """Returns the first expression of the author's that gives this number and can be written.

        ``in_line`` says that the author's line has the number itself.
        """
        for candidate in self._candidates(node):
            if value in COMMON and not isinstance(candidate, ast.BinOp) and in_line:
                continue
            if (term := self._checked_term(candidate, value)) is not None:
                return term
        if value in COMMON or packet(node) in COUNTS:
            return None
        halved = packet(node) in HALVES
        for name in self._number_attributes():
            candidate = ast.Attribute(ast.Name("self", ast.Load()), name, ast.Load())
            if (term := self._checked_term(candidate, value)) is not None:
                return term
            if halved and (term := self._checked_term(candidate, 2 * value)) is not None:
                return ast.BinOp(term, ast.FloorDiv(), ast.Constant(2))
        return None

    def _shape_terms(self, expr: ast.expr, fresh: list, node: fx.Node) -> dict[int, ast.expr]:
        """Returns terms for the sizes of a shape: the author's in the same place from the end."""
        method = lambda x: isinstance(x, ast.Call) and isinstance(x.func, ast.Attribute)
        calls: list[Any] = [x for x in self._candidates(node) if method(x)]
        reshapes = [x for x in calls if f"aten.{x.func.attr}" in RESHAPES]
        shapes = [list(_shape_elements(x.args, self.function.locals)) for x in reshapes]
        swap: dict[int, ast.expr] = {}
        shape_of = (x.args for x in ast.walk(expr) if isinstance(x, ast.Call))
        for args in shape_of:
            for place, x in enumerate(reversed(args), 1):
                if not isinstance(x, ast.Constant) or not any(x is y for y in fresh):
                    continue
                sizes_there = (shape[-place] for shape in shapes if place <= len(shape))
                terms = (self._checked_term(size, x.value) for size in sizes_there)
                matching = next((term for term in terms if term is not None), None)
                if matching is not None:
                    swap[id(x)] = matching
        return swap

    def _argument_sizes(self, expr: ast.expr, fresh: list) -> dict[int, ast.expr]:
        """Returns names of sizes that an argument has in the same place of its shape."""
        args = next((x.args for x in [expr] if isinstance(x, ast.Call)), [])
        shape = args[-1].elts if args and isinstance(args[-1], ast.Tuple) else args
        names = {}
        for place, x in enumerate(shape):
            value: Any = getattr(x, "value", None)
            is_new = any(x is y for y in fresh) and value not in COMMON
            if is_new and (name := self.sizes.same(place, value)):
                names[id(x)] = name
        return names

    def _checked_term(self, candidate: ast.expr, wanted: object) -> ast.expr | None:
        """Returns the candidate as code, if it gives this number and the class can have it."""
        try:
            value, expr = _ForwardReader(self).read(candidate)
        except NotExpressible:
            return None
        if not is_number(value) or value != wanted or isinstance(expr, ast.Constant):
            return None
        if isinstance(value, float) and isinstance(wanted, int):  # 16**0.5 is no size
            return None
        names = names_in(expr)
        new_fields = {}
        for name in (*names.attributes, *names.fields):
            home = self.scope.module if name in names.attributes else self.scope.config
            number = getattr(home, name) if home is self.scope.module else field_of(home, name)
            current = self.fields.get(name)
            is_free = current is None or getattr(current, "value", None) == number
            if not is_number(number) or not is_free:
                return None
            new_fields[name] = current or with_path(with_hints(number, name), name, "self")
        for name in names.parameters:  # a size, from now on
            self.sizes.named(name)
        self.fields |= new_fields
        is_config = lambda x: isinstance(x, ast.Name) and x.id == "config"
        return replaced(expr, lambda x: name_of("self") if is_config(x) else None)

    def _candidates(self, node: fx.Node) -> Iterator[ast.expr]:
        """Yields the expressions of the statement, then those of variables that it reads."""
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

    def _number_attributes(self) -> list[str]:
        """Returns the names of the module's numbers that its class reads somewhere."""
        values = vars(self.scope.module)
        return [
            x for x in _attributes_read(self.scope.module.__class__) if is_number(values.get(x))
        ]


class _ForwardReader(Reader):
    """A reader that knows the author's names for sizes of arguments that are numbers."""

    def __init__(self, numbers: ForwardNumbers):
        super().__init__(numbers.scope, numbers.function)
        self.sizes = numbers.sizes

    def name(self, name: str) -> tuple[Any, ast.expr]:
        if (value := self.sizes.static(name)) is not None:
            return value, ast.Name(name, ast.Load())
        return super().name(name)


def _shape_elements(
    args: list[ast.expr], variables: dict[str, list[ast.expr]]
) -> Iterator[ast.expr]:
    """Yields the elements of a shape, given as numbers, a tuple, or a variable that is one."""
    for x in args:
        match x:
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                yield from _shape_elements(elts, variables)
            case ast.Name(id=name) if isinstance((variables.get(name) or [x])[0], ast.Tuple):
                yield from _shape_elements(variables[name][:1], variables)
            case ast.BinOp(op=ast.Add(), left=left, right=right) if isinstance(right, ast.Tuple):
                yield from _shape_elements([left, right], variables)
            case _:
                yield x


def _numbers(expr: ast.AST) -> Iterator[Any]:
    """Yields the numbers in an expression, without axes and places in lists of modules."""
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


@functools.cache
def _attributes_read(cls: type) -> list[str]:
    """Returns the names X of ``self.X`` in a class and its bases, forward functions first."""
    names: dict[str, None] = {}
    for tree in class_trees(cls):
        functions = [x for x in ast.walk(tree) if isinstance(x, ast.FunctionDef)]
        for function in sorted(functions, key=lambda x: x.name != "forward"):
            names |= dict.fromkeys(names_in(function).attributes)
    return list(names)
