"""The author's expressions in terms of the class that is written, and their values."""

from __future__ import annotations

import ast
import inspect
import math
import operator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from anyjax.flax.codegen.author.constructors import Constructor, constructors_of

BINARY_OPERATORS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}  # fmt: skip
CONFIG = ("config", "self.config")
BUILTINS: dict[str, Any] = {
    "int": int,
    "float": float,
    "round": round,
    "min": min,
    "max": max,
    "abs": abs,
}


class NotExpressible(Exception):
    """Raised for an expression that has no meaning in the class that is written."""


def is_number(value: object) -> bool:
    """Returns whether a value is an int or a float."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class Scope:
    """One module's constructor: the values of its parameters, configuration and attributes.

    Attributes:
      config: the configuration that it was given, if there is one.
      values: the values of its parameters that are known.
      super_arguments: the arguments of a base's constructor, with the constructor that passed them.
    """

    def __init__(self, module: torch.nn.Module, config: Any):
        self.module = module
        self.constructors = constructors_of(module.__class__)
        takes = [n for c in self.constructors[:1] for n in c.parameters]
        self.config = getattr(module, "config", None)
        if self.config is None and "config" in takes:
            self.config = config
        self.values: dict[str, Any] = {}
        self.super_arguments: dict[Constructor, dict[str, tuple[ast.expr, Constructor]]] = {}
        for constructor, base in pairwise(self.constructors):
            self._record_super_call(constructor, base)
        for constructor in self.constructors:
            for name, assigned in constructor.attributes.items():
                match assigned:
                    case [ast.Name(id=parameter)] if own_name := self.own_name(
                        parameter, constructor
                    ):
                        self.bind(own_name, getattr(module, name, None))

    def own_name(self, parameter: str, constructor: Constructor) -> str | None:
        """Returns the class's own name for a parameter of a base; None if it passes a value."""
        if parameter in constructor.locals or parameter not in constructor.parameters:
            return None
        if constructor is self.constructors[0]:
            return parameter
        passed = self.super_arguments.get(constructor, {}).get(parameter)
        match passed:
            case (ast.Name(id=name), home):
                return self.own_name(name, home)
        return None

    def _record_super_call(self, constructor: Constructor, base: Constructor) -> None:
        """Records the arguments of ``super().__init__``."""
        super_call, forwarded = constructor.super_call, constructor.forwarded
        if super_call is None or (
            not forwarded and any(isinstance(x, ast.Starred) for x in super_call.args)
        ):
            return
        arguments: dict[str, ast.expr]
        arguments = dict(
            zip(base.parameters, [x for x in super_call.args if not isinstance(x, ast.Starred)])
        )
        arguments |= {x: ast.Name(x, ast.Load()) for x in forwarded}
        arguments |= {k.arg: k.value for k in super_call.keywords if k.arg in base.parameters}
        self.super_arguments[base] = {name: (x, constructor) for name, x in arguments.items()}

    def bind(self, parameter: str, value: object) -> None:
        if is_number(value):
            self.values.setdefault(parameter, value)

    def parameter(self, name: str, constructor: Constructor) -> Any:
        """Returns a parameter's value if it is known, else its default.

        Raises:
          NotExpressible: neither is there.
        """
        if name in self.values:
            return self.values[name]
        default = constructor.parameters.get(name, inspect.Parameter.empty)
        if default is inspect.Parameter.empty:
            raise NotExpressible(name)
        return default

    def read(self, expr: ast.expr, constructor: Constructor) -> tuple[Any, ast.expr]:
        """Returns the value, and the expression of the class that is written.

        Raises:
          NotExpressible: it is made of something that the class does not have.
        """
        return Reader(self, constructor).read(expr)


def field_of(config: Any, name: str) -> Any:
    """Returns a field of a configuration, or of one of the dicts in it."""
    homes = [config, *(x for x in getattr(config, "__dict__", {}).values() if isinstance(x, dict))]
    if hasattr(config, name):
        return getattr(config, name)
    return next((x[name] for x in homes[1:] if name in x), None)


@dataclass(frozen=True)
class NamesRead:
    """Names that an expression of the class reads."""

    parameters: list[str]
    attributes: list[str]
    fields: list[str]


def names_in(expr: ast.AST) -> NamesRead:
    """Returns the names in an expression."""
    names = NamesRead([], [], [])
    for x in ast.walk(expr):
        match x:
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                names.attributes.append(name)
            case ast.Attribute(value=ast.Name(id="config"), attr=name):
                names.fields.append(name)
            case ast.Name(id=name) if name not in {"self", "config", "math", "len", *BUILTINS}:
                names.parameters.append(name)
    return names


class Reader:
    """Reads expressions of one function."""

    def __init__(self, scope: Scope, constructor: Constructor):
        self.scope, self.constructor = scope, constructor
        self.open: set[str] = set()

    def read(self, expr: ast.expr) -> tuple[Any, ast.expr]:
        """Returns the value of an expression, and the expression in the class that is written."""
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
            case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY_OPERATORS:
                (a, x), (b, y) = self.read(left), self.read(right)
                try:
                    return BINARY_OPERATORS[type(op)](self.number(a), self.number(b)), ast.BinOp(
                        x, op, y
                    )
                except (ZeroDivisionError, OverflowError) as error:
                    raise NotExpressible(ast.unparse(expr)) from error
            case ast.BoolOp(values=values, op=op):
                for inner in values:
                    value, text = self.read(inner)
                    if bool(value) is isinstance(op, ast.Or):
                        break
                return value, text
            case ast.IfExp(test=test, body=body, orelse=other):
                return self.read(body if self.is_true(test) else other)
            case ast.Subscript(value=home, slice=ast.Constant(value=int() as place)):
                value, text = self.read(home)
                if isinstance(value, (list, tuple)) and place < len(value):
                    return value[place], ast.Subscript(text, ast.Constant(place), ast.Load())
            case ast.Subscript(value=home, slice=ast.Constant(value=str() as key)):
                return self.entry(home, key)
            case ast.Call(func=func, args=args, keywords=[]):
                return self.call(ast.unparse(func), args)
        raise NotExpressible(ast.unparse(expr))

    def entry(self, home: ast.expr, key: str) -> tuple[Any, ast.expr]:
        """Returns ``config.rope_parameters["rope_theta"]`` as a field of the
        written configuration.
        """
        match home:
            case ast.Attribute(value=ast.Name(id="config")) if is_number(
                value := field_of(self.scope.config, key)
            ):
                return value, ast.Attribute(ast.Name("config", ast.Load()), key, ast.Load())
        raise NotExpressible(key)

    def number(self, value: object) -> Any:
        if not is_number(value):
            raise NotExpressible(repr(value))
        return value

    def is_true(self, test: ast.expr) -> bool:
        match test:
            case ast.Compare(left=left, ops=[op], comparators=[ast.Constant(value=None)]):
                return (self.read(left)[0] is None) is isinstance(op, ast.Is)
            case ast.Call(func=ast.Name(id="hasattr"), args=[ast.Name(), ast.Constant(value=name)]):
                return hasattr(self.scope.config, str(name))
        return bool(self.read(test)[0])

    def name(self, name: str) -> tuple[Any, ast.expr]:
        scope = self.scope
        expressions = self.constructor.locals.get(name, [])
        if name not in self.open and len(expressions) == 1:
            self.open.add(name)
            try:
                return self.read(expressions[0])
            finally:
                self.open.discard(name)
        if name in self.constructor.parameters and name not in self.constructor.locals:
            if self.constructor is not scope.constructors[0]:
                return self.base_parameter(name)
            value = scope.parameter(name, self.constructor)
            if is_number(value):
                return value, ast.Name(name, ast.Load())
            if value is None or isinstance(value, (bool, str)):
                return value, ast.Constant(value)  # decides, and is not written
        if is_number(value := self.constructor.globals.get(name)):
            return value, ast.Constant(value)
        raise NotExpressible(name)

    def base_parameter(self, name: str) -> tuple[Any, ast.expr]:
        """Returns a parameter of a base's constructor, in the terms of the class itself."""
        passed = self.scope.super_arguments.get(self.constructor)
        if passed is None:
            raise NotExpressible(name)
        if name in passed:
            return self.scope.read(*passed[name])
        default = self.constructor.parameters[name]
        if default is inspect.Parameter.empty:
            raise NotExpressible(name)
        return default, ast.Constant(default)

    def attribute(self, expr: ast.Attribute) -> tuple[Any, ast.expr]:
        scope = self.scope
        match expr:
            case ast.Attribute(value=home, attr=name) if ast.unparse(home) in CONFIG:
                return self.field(name)
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if hasattr(scope.module, name):
                value = getattr(scope.module, name)
                expressions = self.constructor.attributes.get(name, ())
                if len(expressions) == 1 and f"self.{name}" not in self.open:
                    self.open.add(f"self.{name}")
                    try:  # `self.width = width`: the shorter one
                        shorter, text = self.read(expressions[0])
                        if shorter == value and _is_simple(text):
                            return value, text
                    except NotExpressible:
                        pass
                    finally:
                        self.open.discard(f"self.{name}")
                if is_number(value):
                    return value, ast.Attribute(ast.Name("self", ast.Load()), name, ast.Load())
                if value is None or isinstance(value, (bool, str)):
                    return value, ast.Constant(value)
            case ast.Attribute(value=ast.Name(id="math"), attr=name) if name in ("pi", "e"):
                return getattr(math, name), expr
        raise NotExpressible(ast.unparse(expr))

    def field(self, name: str) -> tuple[Any, ast.expr]:
        """Returns a field of the configuration."""
        config = self.scope.config
        if config is None or not hasattr(config, name):
            raise NotExpressible(f"config.{name}")
        value = getattr(config, name)
        is_list = isinstance(value, (list, tuple)) and all(map(is_number, value))
        if is_number(value) or is_list:
            return value, ast.Attribute(ast.Name("config", ast.Load()), name, ast.Load())
        if value is None or isinstance(value, (bool, str)):
            return value, ast.Constant(value)
        raise NotExpressible(f"config.{name}")

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
        called = BUILTINS.get(name) if not module else getattr(math, name, None)
        if called is not None and module in ("", "math"):
            operands = [self.read(x) for x in args]
            callee = ast.parse(function, mode="eval").body
            value = called(*(self.number(v) for v, _ in operands))
            return value, ast.Call(callee, [text for _, text in operands], [])
        raise NotExpressible(function)


def _is_simple(text: ast.expr) -> bool:
    return isinstance(text, ast.Name) or (
        isinstance(text, ast.Attribute) and ast.unparse(text.value) == "config"
    )
