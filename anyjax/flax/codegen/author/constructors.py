"""The author's ``__init__``: the expressions that attributes were made with."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from anyjax.flax.codegen.author.source_lines import class_trees, rename_first_to_self

# Flax's names of arguments and torch's.
TORCH_NAMES = {
    "in_features": ("in_features", "in_channels"),
    "out_features": ("out_features", "out_channels"),
    "num_features": ("num_features", "normalized_shape", "num_channels"),
    "features": ("embedding_dim",),
    "hidden": ("hidden_size",),
    "epsilon": ("eps",),
    "rate": ("p",),
    "strides": ("stride",),
    "kernel_dilation": ("dilation",),
    "feature_group_count": ("groups",),
}
RANGE_FUNCTIONS = {"arange", "linspace"}
ARRAY_FUNCTIONS = {"ones", "zeros", "empty", "randn", "rand", "full", "Tensor", "normal"}


@dataclass(eq=False)
class Constructor:
    """One ``__init__``.

    Attributes:
      parameters: its parameters, each with its default (``inspect.Parameter.empty``: none).
      attributes: expressions by the attribute that they were assigned to.
      locals: expressions by the local variable that they were assigned to.
      loops: the counts of loops that append to a list, by the list's name.
      globals: the globals of its file.
      super_call: the call of the base class's ``__init__``.
      star_parameters: the names of its parameters ``*args`` and ``**kwargs``.
      forwarded: parameters of the base class that come in these.
    """

    parameters: dict[str, Any]
    globals: dict[str, Any]
    attributes: dict[str, list[ast.expr]] = field(default_factory=dict)
    locals: dict[str, list[ast.expr]] = field(default_factory=dict)
    loops: dict[str, list[ast.expr]] = field(default_factory=dict)
    super_call: ast.Call | None = None
    star_parameters: set[str] = field(default_factory=set)
    forwarded: list[str] = field(default_factory=list)

    def take_base_parameters(self, base: Constructor) -> None:
        """Takes the base class's parameters where ``*args`` or ``**kwargs`` hand them on."""
        if self.super_call is None:
            return
        open_ends = [x.value for x in self.super_call.args if isinstance(x, ast.Starred)]
        open_ends += [x.value for x in self.super_call.keywords if x.arg is None]
        if not any(isinstance(x, ast.Name) and x.id in self.star_parameters for x in open_ends):
            return
        count = sum(not isinstance(x, ast.Starred) for x in self.super_call.args)
        passed = {*list(base.parameters)[:count], *(x.arg for x in self.super_call.keywords)}
        for name, default in base.parameters.items():
            if name not in passed | {*self.parameters}:
                self.parameters[name] = default
                self.forwarded.append(name)

    def record(self, tree: ast.AST) -> None:
        """Records the assignments of a body."""
        for x in ast.walk(tree):
            match x:
                case ast.Assign(targets=targets, value=value):
                    for target in targets:
                        self._record_assignment(target, value)
                case ast.AnnAssign(target=target, value=ast.expr() as value):
                    self._record_assignment(target, value)
                case ast.Call(func=ast.Attribute(attr="append", value=home), args=[value]):
                    self._record_assignment(home, ast.List([value], ast.Load()))
                case ast.Call(func=ast.Attribute(attr="__init__", value=ast.Call())):
                    self.super_call = x
                case ast.For(iter=ast.Call(func=ast.Name(id="range"), args=[count]), body=body):
                    for call in (y for statement in body for y in ast.walk(statement)):
                        match call:
                            case ast.Call(func=ast.Attribute(attr="append", value=home)):
                                self.loops.setdefault(ast.unparse(home), []).append(count)

    def _record_assignment(self, target: ast.expr, value: ast.expr) -> None:
        match target:
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                self.attributes.setdefault(name, []).append(value)
            case ast.Name(id=name):
                self.locals.setdefault(name, []).append(value)

    def expressions_for(self, path: str) -> list[ast.expr]:
        """Returns expressions that may have made ``self.<path>``, where numbers are places in
        lists.
        """
        attribute, *places = path.split(".")
        expressions = list(self.attributes.get(attribute, ()))
        for place in places:
            expressions = [element for x in expressions for element in self._elements(x, place)]
        return [y for x in expressions for y in self._alternatives(x)]

    def _alternatives(self, expr: ast.expr) -> list[ast.expr]:
        """Returns the expression, the values of a local variable, and both sides of a choice."""
        assigned = self.locals.get(expr.id, []) if isinstance(expr, ast.Name) else []
        return [side for x in (expr, *assigned) for side in _sides_of_choice(x)]

    def list_lengths(self, path: str) -> list[ast.expr]:
        """Returns expressions that may be the length of the list ``self.<path>``."""
        lengths = list(self.loops.get(f"self.{path}", ()))
        for x in self.expressions_for(path):
            for node in ast.walk(x):
                match node:
                    case ast.Name(id=name):
                        lengths += self.loops.get(name, ())
                    case ast.comprehension(iter=ast.Call(func=ast.Name(id="range"), args=[count])):
                        lengths.append(count)
        return lengths

    def _elements(self, container: ast.expr, place: str, depth: int = 0) -> list[ast.expr]:
        """Returns expressions that may be at a place of a list, or at a key of a dict."""
        elements_of = lambda x: self._elements(x, place, depth + 1) if depth < 6 else []
        match container:
            case ast.List(elts=elts) | ast.Tuple(elts=elts):
                if len(elts) == 1 and not isinstance(elts[0], ast.Starred):
                    return elts  # of what was appended
                return elts[int(place) :][:1] if place.isdigit() else []
            case ast.ListComp(elt=elt) | ast.GeneratorExp(elt=elt):
                return [elt]
            case ast.BinOp(left=left, right=right):
                return elements_of(left) + elements_of(right)
            case ast.Starred(value=value):
                return elements_of(value)
            case ast.Name(id=name):
                return [element for x in self.locals.get(name, ()) for element in elements_of(x)]
            case ast.Dict(keys=keys, values=values):
                named = zip(keys, values)
                return [v for k, v in named if isinstance(k, ast.Constant) and k.value == place]
            case ast.Call(args=[only]) if not isinstance(only, ast.Call):
                return elements_of(only)
            case ast.Call(args=args) if place.isdigit():
                return args[int(place) :][:1]
        return []

    def arguments(self, path: str, name: str, callee: type) -> list[ast.expr]:
        """Returns expressions that may be the argument ``name`` in the construction of
        ``self.<path>``.
        """
        order = list(inspect.signature(callee.__init__).parameters)[1:]  # type: ignore[misc]
        spellings = [x for x in TORCH_NAMES.get(name, (name,)) if x in order]
        values = []
        calls = [x for x in self.expressions_for(path) if isinstance(x, ast.Call)]
        matching = [x for x in calls if _function_name(x) == callee.__name__]
        for call in matching or calls:  # the author may make another class under a condition
            values += [k.value for k in call.keywords if k.arg in spellings]
            places = [order.index(x) for x in spellings if order.index(x) < len(call.args)]
            values += [call.args[i] for i in places]
        return [y for x in values for y in _sides_of_choice(x)]

    def dimension(self, path: str, dim: int) -> list[ast.expr]:
        """Returns expressions that may be a dimension of the parameter ``self.<path>``."""
        dimensions = []
        for expression in self.expressions_for(path):
            for x in ast.walk(expression):
                if isinstance(x, ast.Call) and _function_name(x) in ARRAY_FUNCTIONS:
                    sizes = x.args
                    if sizes and isinstance(sizes[0], (ast.Tuple, ast.List)):
                        sizes = sizes[0].elts
                    dimensions += sizes[dim:][:1]
        return dimensions


def _sides_of_choice(expr: ast.expr) -> tuple[ast.expr, ...]:
    return (expr, expr.body, expr.orelse) if isinstance(expr, ast.IfExp) else (expr,)


@functools.cache
def assigned_values(cls: type) -> list[ast.expr]:
    """Returns the values of all assignments in a class and its bases."""
    nodes = [x for tree in class_trees(cls) for x in ast.walk(tree)]
    values = [x.value for x in nodes if isinstance(x, ast.Assign)]
    calls = lambda nodes: [x for x in nodes if isinstance(x, ast.Call)]
    buffers = [x for x in calls(nodes) if _function_name(x) == "register_buffer"]
    ranges = [
        y for x in buffers for y in calls(ast.walk(x)) if _function_name(y) in RANGE_FUNCTIONS
    ]
    return values + [x for call in ranges for x in call.args]


def _function_name(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


@functools.cache
def constructors_of(cls: type) -> tuple[Constructor, ...]:
    """Returns the constructors of the class and its bases, as far as there is source."""
    constructors = []
    for base in cls.__mro__:
        function = vars(base).get("__init__")
        if function is None or base.__module__.startswith("torch.nn.modules.module"):
            continue
        if (constructor := _constructor(base, inspect.unwrap(function))) is not None:
            constructors.append(constructor)
    for constructor, base_constructor in reversed([*pairwise(constructors)]):
        constructor.take_base_parameters(base_constructor)
    return tuple(constructors)


def _constructor(cls: type, function: Callable) -> Constructor | None:
    """Returns one ``__init__``; None where there is no source."""
    try:
        tree: Any = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        if getattr(tree, "name", "") != "__init__":  # what a decorator has put in its place
            class_tree: Any = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
            tree = next(x for x in class_tree.body if getattr(x, "name", "") == "__init__")
    except (OSError, TypeError, SyntaxError, StopIteration, IndexError, AttributeError):
        return None
    if not isinstance(tree, ast.FunctionDef):
        return None
    rename_first_to_self(tree)
    arguments = tree.args
    star_parameters = {x.arg for x in (arguments.vararg, arguments.kwarg) if x}
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + arguments.defaults
    pairs = [*zip(positional, defaults), *zip(arguments.kwonlyargs, arguments.kw_defaults)]
    parameters = {x.arg: _default(function, x.arg, y) for x, y in pairs if x.arg != "self"}
    constructor = Constructor(parameters, function.__globals__, star_parameters=star_parameters)
    constructor.record(tree)
    return constructor


def _default(function: Callable, name: str, default: ast.expr | None) -> Any:
    """Returns a parameter's default, from the function or from the source."""
    parameter = inspect.signature(function).parameters.get(name)
    if parameter is not None:
        return parameter.default
    try:
        return inspect.Parameter.empty if default is None else ast.literal_eval(default)
    except ValueError:
        return inspect.Parameter.empty
