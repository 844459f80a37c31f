"""The author's expressions in the terms of the class that is written: what they are and mean."""

from __future__ import annotations

import ast
import inspect
import math
import operator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tojax.flax.codegen.author.constructors import Constructor, constructors_of

BINARY = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}  # fmt: skip
CONFIG = ("config", "self.config")
FUNCTIONS: dict[str, Any] = {
    "int": int,
    "float": float,
    "round": round,
    "min": min,
    "max": max,
    "abs": abs,
}


class Unknown(Exception):
    """An expression that means nothing in the class that is written."""


def is_number(value: Any) -> bool:
    """Whether a value is an int or a float."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class Scope:
    """One module's constructor: its parameters' values, its configuration, its attributes.

    Attributes:
      config: the configuration that it was given, if it was given one.
      values: what its parameters were, as far as that is known.
      above: what a base's constructor was given, with the constructor that gave it.
    """

    def __init__(self, module: Any, config: Any):
        self.module = module
        self.constructors = constructors_of(module.__class__)
        takes = [n for c in self.constructors[:1] for n in c.parameters]
        own = getattr(module, "config", None)
        self.config = (own if own is not None else config) if "config" in takes else own
        self.values: dict[str, Any] = {}
        self.above: dict[Constructor, dict[str, tuple[ast.expr, Constructor]]] = {}
        for constructor, base in pairwise(self.constructors):
            self._handed_up(constructor, base)
        for constructor in self.constructors:
            for name, given in constructor.attributes.items():
                match given:
                    case [ast.Name(id=parameter)] if own := self.own_name(parameter, constructor):
                        self.bind(own, getattr(module, name, None))

    def own_name(self, parameter: str, constructor: Constructor) -> str | None:
        """What the class itself calls a parameter of a base's constructor that it hands up."""
        if parameter in constructor.locals or parameter not in constructor.parameters:
            return None
        if constructor is self.constructors[0]:
            return parameter
        given = self.above.get(constructor, {}).get(parameter)
        match given:
            case (ast.Name(id=name), home):
                return self.own_name(name, home)
        return None

    def _handed_up(self, constructor: Constructor, base: Constructor) -> None:
        """The arguments of ``super().__init__``; what is not given is the default there."""
        call, passed = constructor.above, constructor.forwarded
        if call is None or (not passed and any(isinstance(x, ast.Starred) for x in call.args)):
            return
        given: dict[str, ast.expr]
        given = dict(zip(base.parameters, [x for x in call.args if not isinstance(x, ast.Starred)]))
        given |= {x: ast.Name(x, ast.Load()) for x in passed}
        given |= {k.arg: k.value for k in call.keywords if k.arg in base.parameters}
        self.above[base] = {name: (x, constructor) for name, x in given.items()}

    def bind(self, parameter: str, value: Any) -> None:
        if is_number(value):
            self.values.setdefault(parameter, value)

    def parameter(self, name: str, constructor: Constructor) -> Any:
        """A parameter's value: known, or else its default.

        Raises:
          Unknown: neither is there.
        """
        if name in self.values:
            return self.values[name]
        default = constructor.parameters.get(name, inspect.Parameter.empty)
        if default is inspect.Parameter.empty:
            raise Unknown(name)
        return default

    def of(self, expr: ast.expr, constructor: Constructor) -> tuple[Any, ast.expr]:
        """(the value, the expression of the class that is written).

        Raises:
          Unknown: it is made of something that the class does not have.
        """
        return Reader(self, constructor).read(expr)


def field_of(config: Any, name: str) -> Any:
    """A field of a configuration, or of one of the dicts in it."""
    homes = [config, *(x for x in getattr(config, "__dict__", {}).values() if isinstance(x, dict))]
    if hasattr(config, name):
        return getattr(config, name)
    return next((x[name] for x in homes[1:] if name in x), None)


@dataclass(frozen=True)
class Names:
    """What an expression of the class reads: its parameters, attributes, configuration's fields."""

    parameters: list[str]
    attributes: list[str]
    fields: list[str]


def names_in(expr: ast.AST) -> Names:
    """The names in an expression."""
    found = Names([], [], [])
    for x in ast.walk(expr):
        match x:
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                found.attributes.append(name)
            case ast.Attribute(value=ast.Name(id="config"), attr=name):
                found.fields.append(name)
            case ast.Name(id=name) if name not in {"self", "config", "math", "len", *FUNCTIONS}:
                found.parameters.append(name)
    return found


class Reader:
    """Reads expressions of one function."""

    def __init__(self, scope: Scope, constructor: Constructor):
        self.scope, self.constructor = scope, constructor
        self.open: set[str] = set()

    def read(self, expr: ast.expr) -> tuple[Any, ast.expr]:
        match expr:
            case ast.Constant(value=value):
                return value, ast.Constant(value)
            case ast.Name(id=name):
                return self.name(name)
            case ast.Attribute():
                return self.attribute(expr)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                value, text = self.read(inner)
                return -self.number(value), ast.UnaryOp(ast.USub(), text)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
                (a, x), (b, y) = self.read(left), self.read(right)
                try:
                    return BINARY[type(op)](self.number(a), self.number(b)), ast.BinOp(x, op, y)
                except (ZeroDivisionError, OverflowError) as error:
                    raise Unknown(ast.unparse(expr)) from error
            case ast.BoolOp(values=values, op=op):
                for inner in values:
                    value, text = self.read(inner)
                    if bool(value) is isinstance(op, ast.Or):
                        break
                return value, text
            case ast.IfExp(test=test, body=body, orelse=other):
                return self.read(body if self.truth(test) else other)
            case ast.Subscript(value=home, slice=ast.Constant(value=int() as place)):
                value, text = self.read(home)
                if isinstance(value, (list, tuple)) and place < len(value):
                    return value[place], ast.Subscript(text, ast.Constant(place), ast.Load())
            case ast.Subscript(value=home, slice=ast.Constant(value=str() as key)):
                return self.entry(home, key)
            case ast.Call(func=func, args=args, keywords=[]):
                return self.call(ast.unparse(func), args)
        raise Unknown(ast.unparse(expr))

    def entry(self, home: ast.expr, key: str) -> tuple[Any, ast.expr]:
        """``config.rope_parameters["rope_theta"]``: a field of its own where it is written."""
        match home:
            case ast.Attribute(value=ast.Name(id="config")) if is_number(
                value := field_of(self.scope.config, key)
            ):
                return value, ast.Attribute(ast.Name("config", ast.Load()), key, ast.Load())
        raise Unknown(key)

    def number(self, value: Any) -> Any:
        if not is_number(value):
            raise Unknown(repr(value))
        return value

    def truth(self, test: ast.expr) -> bool:
        match test:
            case ast.Compare(left=left, ops=[op], comparators=[ast.Constant(value=None)]):
                return (self.read(left)[0] is None) is isinstance(op, ast.Is)
            case ast.Call(func=ast.Name(id="hasattr"), args=[ast.Name(), ast.Constant(value=name)]):
                return hasattr(self.scope.config, str(name))
        return bool(self.read(test)[0])

    def name(self, name: str) -> tuple[Any, ast.expr]:
        scope = self.scope
        made = self.constructor.locals.get(name, [])
        if name not in self.open and len(made) == 1:
            self.open.add(name)
            try:
                return self.read(made[0])
            finally:
                self.open.discard(name)
        if name in self.constructor.parameters and name not in self.constructor.locals:
            if self.constructor is not scope.constructors[0]:
                return self.handed(name)
            value = scope.parameter(name, self.constructor)
            if is_number(value):
                return value, ast.Name(name, ast.Load())
            if value is None or isinstance(value, (bool, str)):
                return value, ast.Constant(value)  # decides, and is not written
        if is_number(value := self.constructor.names.get(name)):
            return value, ast.Constant(value)
        raise Unknown(name)

    def handed(self, name: str) -> tuple[Any, ast.expr]:
        """A parameter of a base's constructor, in the terms of the class itself."""
        given = self.scope.above.get(self.constructor)
        if given is None:
            raise Unknown(name)
        if name in given:
            return self.scope.of(*given[name])
        default = self.constructor.parameters[name]
        if default is inspect.Parameter.empty:
            raise Unknown(name)
        return default, ast.Constant(default)

    def attribute(self, expr: ast.Attribute) -> tuple[Any, ast.expr]:
        scope = self.scope
        match expr:
            case ast.Attribute(value=home, attr=name) if ast.unparse(home) in CONFIG:
                return self.field(name)
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if hasattr(scope.module, name):
                value = getattr(scope.module, name)
                made = self.constructor.attributes.get(name, ())
                if len(made) == 1 and f"self.{name}" not in self.open:
                    self.open.add(f"self.{name}")
                    try:  # `self.width = width`: the shorter one
                        same, text = self.read(made[0])
                        if same == value and _simple(text):
                            return value, text
                    except Unknown:
                        pass
                    finally:
                        self.open.discard(f"self.{name}")
                if is_number(value):
                    return value, ast.Attribute(ast.Name("self", ast.Load()), name, ast.Load())
                if value is None or isinstance(value, (bool, str)):
                    return value, ast.Constant(value)
            case ast.Attribute(value=ast.Name(id="math"), attr=name) if name in ("pi", "e"):
                return getattr(math, name), expr
        raise Unknown(ast.unparse(expr))

    def field(self, name: str) -> tuple[Any, ast.expr]:
        """A field of the configuration."""
        config = self.scope.config
        if config is None or not hasattr(config, name):
            raise Unknown(f"config.{name}")
        value = getattr(config, name)
        numbers = isinstance(value, (list, tuple)) and all(map(is_number, value))
        if is_number(value) or numbers:
            return value, ast.Attribute(ast.Name("config", ast.Load()), name, ast.Load())
        if value is None or isinstance(value, (bool, str)):
            return value, ast.Constant(value)
        raise Unknown(f"config.{name}")

    def call(self, function: str, args: list[ast.expr]) -> tuple[Any, ast.expr]:
        if function == "getattr" and len(args) >= 2 and isinstance(args[1], ast.Constant):
            home, name = ast.unparse(args[0]), str(args[1].value)
            if home == "config" and hasattr(self.scope.config, name):
                return self.field(name)
            if home == "config" and len(args) == 3:
                return self.read(args[2])
        if function == "len" and len(args) == 1:
            value, text = self.read(args[0])
            if isinstance(value, (list, tuple)):
                return len(value), ast.Call(ast.Name("len", ast.Load()), [text], [])
        module, _, name = function.rpartition(".")
        known = FUNCTIONS.get(name) if not module else getattr(math, name, None)
        if known is not None and module in ("", "math"):
            parts = [self.read(x) for x in args]
            head = ast.parse(function, mode="eval").body
            value = known(*(self.number(v) for v, _ in parts))
            return value, ast.Call(head, [text for _, text in parts], [])
        raise Unknown(function)


def _simple(text: ast.expr) -> bool:
    return isinstance(text, ast.Name) or (
        isinstance(text, ast.Attribute) and ast.unparse(text.value) == "config"
    )
