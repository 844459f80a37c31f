"""What the author's ``__init__`` says: the expressions that attributes were made with."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tojax.flax.codegen.author.source_lines import class_trees, named_self

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
RANGES = {"arange", "linspace"}
ARRAYS = {"ones", "zeros", "empty", "randn", "rand", "full", "Tensor", "normal"}


@dataclass(eq=False)
class Constructor:
    """One ``__init__``.

    Attributes:
      parameters: its parameters, each with its default (``inspect.Parameter.empty``: none).
      attributes: expressions by the attribute that they were assigned to.
      locals: those of its variables.
      loops: how often what appends to a list runs, by the list's name.
      names: what its file knows.
      above: the call of the base class's ``__init__``.
      rest: its parameters ``*args`` and ``**kwargs``.
      forwarded: parameters of the base class's that come in these.
    """

    parameters: dict[str, Any]
    names: dict[str, Any]
    attributes: dict[str, list[ast.expr]] = field(default_factory=dict)
    locals: dict[str, list[ast.expr]] = field(default_factory=dict)
    loops: dict[str, list[ast.expr]] = field(default_factory=dict)
    above: ast.Call | None = None
    rest: set[str] = field(default_factory=set)
    forwarded: list[str] = field(default_factory=list)

    def forward(self, base: Constructor) -> None:
        """Takes the base class's parameters where ``*args`` or ``**kwargs`` hand them on."""
        if self.above is None:
            return
        open_ends = [x.value for x in self.above.args if isinstance(x, ast.Starred)]
        open_ends += [x.value for x in self.above.keywords if x.arg is None]
        if not any(isinstance(x, ast.Name) and x.id in self.rest for x in open_ends):
            return
        count = sum(not isinstance(x, ast.Starred) for x in self.above.args)
        given = {*list(base.parameters)[:count], *(x.arg for x in self.above.keywords)}
        for name, default in base.parameters.items():
            if name not in given | {*self.parameters}:
                self.parameters[name] = default
                self.forwarded.append(name)

    def note(self, tree: ast.AST) -> None:
        """Takes in the assignments of a body."""
        for x in ast.walk(tree):
            match x:
                case ast.Assign(targets=targets, value=value):
                    for target in targets:
                        self._assigned(target, value)
                case ast.AnnAssign(target=target, value=ast.expr() as value):
                    self._assigned(target, value)
                case ast.Call(func=ast.Attribute(attr="append", value=home), args=[value]):
                    self._assigned(home, ast.List([value], ast.Load()))
                case ast.Call(func=ast.Attribute(attr="__init__", value=ast.Call())):
                    self.above = x
                case ast.For(iter=ast.Call(func=ast.Name(id="range"), args=[count]), body=body):
                    for call in (y for part in body for y in ast.walk(part)):
                        match call:
                            case ast.Call(func=ast.Attribute(attr="append", value=home)):
                                self.loops.setdefault(ast.unparse(home), []).append(count)

    def _assigned(self, target: ast.expr, value: ast.expr) -> None:
        match target:
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                self.attributes.setdefault(name, []).append(value)
            case ast.Name(id=name):
                self.locals.setdefault(name, []).append(value)

    def made(self, path: str) -> list[ast.expr]:
        """The expressions that may have made ``self.<path>``, where numbers are places in lists."""
        first, *rest = path.split(".")
        found = list(self.attributes.get(first, ()))
        for place in rest:
            found = [part for x in found for part in self._parts(x, place)]
        return [y for x in found for y in self._known(x)]

    def _known(self, expr: ast.expr) -> list[ast.expr]:
        """What a local variable holds, and either side of a choice."""
        known = self.locals.get(expr.id, []) if isinstance(expr, ast.Name) else []
        return [part for x in (expr, *known) for part in _sides(x)]

    def counts(self, path: str) -> list[ast.expr]:
        """What may be the length of the list ``self.<path>``."""
        found = list(self.loops.get(f"self.{path}", ()))
        for x in self.made(path):
            for part in ast.walk(x):
                match part:
                    case ast.Name(id=name):
                        found += self.loops.get(name, ())
                    case ast.comprehension(iter=ast.Call(func=ast.Name(id="range"), args=[count])):
                        found.append(count)
        return found

    def _parts(self, whole: ast.expr, place: str, depth: int = 0) -> list[ast.expr]:
        """What may stand at a place of a list, or go by a keyword of a dict."""
        again = lambda x: self._parts(x, place, depth + 1) if depth < 6 else []
        match whole:
            case ast.List(elts=elts) | ast.Tuple(elts=elts):
                if len(elts) == 1 and not isinstance(elts[0], ast.Starred):
                    return elts  # of what was appended
                return elts[int(place) :][:1] if place.isdigit() else []
            case ast.ListComp(elt=elt) | ast.GeneratorExp(elt=elt):
                return [elt]
            case ast.BinOp(left=left, right=right):
                return again(left) + again(right)
            case ast.Starred(value=value):
                return again(value)
            case ast.Name(id=name):
                return [part for x in self.locals.get(name, ()) for part in again(x)]
            case ast.Dict(keys=keys, values=values):
                named = zip(keys, values)
                return [v for k, v in named if isinstance(k, ast.Constant) and k.value == place]
            case ast.Call(args=[only]) if not isinstance(only, ast.Call):
                return again(only)
            case ast.Call(args=args) if place.isdigit():
                return args[int(place) :][:1]
        return []

    def arguments(self, path: str, name: str, callee: type) -> list[ast.expr]:
        """What may have been given as the argument ``name`` where ``self.<path>`` was made."""
        order = list(inspect.signature(callee.__init__).parameters)[1:]  # type: ignore[misc]
        wanted = [x for x in TORCH_NAMES.get(name, (name,)) if x in order]
        found = []
        calls = [x for x in self.made(path) if isinstance(x, ast.Call)]
        named = [x for x in calls if ast.unparse(x.func).split(".")[-1] == callee.__name__]
        for call in named or calls:  # the author may make another class under a condition
            found += [k.value for k in call.keywords if k.arg in wanted]
            places = [order.index(x) for x in wanted if order.index(x) < len(call.args)]
            found += [call.args[i] for i in places]
        return [y for x in found for y in _sides(x)]

    def shape(self, path: str, dim: int) -> list[ast.expr]:
        """What may be a dimension of the parameter ``self.<path>``."""
        found = []
        for made in self.made(path):
            for x in ast.walk(made):
                if isinstance(x, ast.Call) and ast.unparse(x.func).split(".")[-1] in ARRAYS:
                    sizes = x.args
                    if sizes and isinstance(sizes[0], (ast.Tuple, ast.List)):
                        sizes = sizes[0].elts
                    found += sizes[dim:][:1]
        return found


def _sides(expr: ast.expr) -> tuple[ast.expr, ...]:
    return (expr, expr.body, expr.orelse) if isinstance(expr, ast.IfExp) else (expr,)


@functools.cache
def said_in(cls: Any) -> list[ast.expr]:
    """The values of all assignments in a class and its bases."""
    inside = [x for tree in class_trees(cls) for x in ast.walk(tree)]
    found = [x.value for x in inside if isinstance(x, ast.Assign)]
    buffers = [x for x in inside if isinstance(x, ast.Call) and _called(x) == "register_buffer"]
    made = [y for x in buffers for y in ast.walk(x) if isinstance(y, ast.Call)]
    return found + [x for call in made if _called(call) in RANGES for x in call.args]


def _called(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


@functools.cache
def constructors_of(cls: Any) -> tuple[Constructor, ...]:
    """Of the class and its bases, as far as there is source."""
    found = []
    for base in cls.__mro__:
        function = vars(base).get("__init__")
        if function is None or base.__module__.startswith("torch.nn.modules.module"):
            continue
        if (one := _constructor(base, inspect.unwrap(function))) is not None:
            found.append(one)
    for one, above in reversed([*pairwise(found)]):
        one.forward(above)
    return tuple(found)


def _constructor(cls: Any, function: Any) -> Constructor | None:
    """One ``__init__``; None where there is no source."""
    try:
        tree: Any = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        if getattr(tree, "name", "") != "__init__":  # what a decorator has put in its place
            whole: Any = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
            tree = next(x for x in whole.body if getattr(x, "name", "") == "__init__")
    except (OSError, TypeError, SyntaxError, StopIteration, IndexError, AttributeError):
        return None
    if not isinstance(tree, ast.FunctionDef):
        return None
    named_self(tree)
    said, rest = tree.args, {x.arg for x in (tree.args.vararg, tree.args.kwarg) if x}
    plain = [*said.posonlyargs, *said.args]
    defaults = [None] * (len(plain) - len(said.defaults)) + said.defaults
    pairs = [*zip(plain, defaults), *zip(said.kwonlyargs, said.kw_defaults)]
    named = {x.arg: _default(function, x.arg, y) for x, y in pairs if x.arg != "self"}
    one = Constructor(named, function.__globals__, rest=rest)
    one.note(tree)
    return one


def _default(function: Any, name: str, said: ast.expr | None) -> Any:
    """What a parameter is by default, as the function has it or as the author says it."""
    known = inspect.signature(function).parameters.get(name)
    if known is not None:
        return known.default
    try:
        return inspect.Parameter.empty if said is None else ast.literal_eval(said)
    except ValueError:
        return inspect.Parameter.empty
