"""Configurations: a dataclass with the fields that the classes read, as the module has them."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from tojax.flax.codegen.author.evaluate import field_of
from tojax.flax.codegen.python.templates import expression


@dataclass(frozen=True)
class Nested:
    """A configuration inside of another."""

    config: Any
    needs: dict[str, Any]


def passed(inner: Any, needs: dict[str, Any], around: Any) -> tuple[ast.expr, dict[str, Any]]:
    """(what a class gets as its configuration, what that needs of the configuration around it)."""
    if around is not None and _has(around, needs):
        return ast.Name("config", ast.Load()), needs
    for name, part in vars(around).items() if around is not None else ():
        if hasattr(part, "__dict__") and (part is inner or _has(part, needs)):
            found = ast.Attribute(ast.Name("config", ast.Load()), name, ast.Load())
            return found, {name: Nested(part, needs)}
    return _literal(inner, needs), {}


def added(needs: dict[str, Any], more: dict[str, Any]) -> None:
    """Fields that are read beside others."""
    for name, value in more.items():
        before = needs.get(name)
        if isinstance(before, Nested) and isinstance(value, Nested):
            inner = dict(before.needs)
            added(inner, value.needs)
            value = Nested(value.config, inner)
        needs[name] = value


def _has(config: Any, needs: dict[str, Any]) -> bool:
    """Whether a configuration has these values."""
    if not hasattr(config, "to_dict") and not hasattr(config, "__dict__"):
        return False
    for name, value in needs.items():
        mine = field_of(config, name)
        if isinstance(value, Nested):
            if mine is None or not _has(mine, value.needs):
                return False
        elif mine != value:
            return False
    return True


def _literal(config: Any, needs: dict[str, Any]) -> ast.expr:
    """A configuration spelled out."""
    words = [
        ast.keyword(
            k, _literal(v.config, v.needs) if isinstance(v, Nested) else expression(_plain(v))
        )
        for k, v in needs.items()
    ]
    found = ast.Call(ast.Name(type(config).__name__, ast.Load()), [], words)
    found.literal = (config, needs)  # type: ignore[attr-defined]
    return found


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@dataclass
class Configs:
    """The dataclasses of a file: (field -> default) by name."""

    found: dict[str, dict[str, Any]] = field(default_factory=dict)

    def note(self, config: Any, needs: dict[str, Any]) -> None:
        """These fields are read of this configuration."""
        if not needs:
            return
        mine: dict[str, Any] = {}
        for name, value in needs.items():
            if isinstance(value, Nested):
                self.note(value.config, value.needs)
                mine[name] = ast.parse(f"{type(value.config).__name__}()", mode="eval").body
            else:
                mine[name] = expression(_plain(value))
        name = type(config).__name__
        self.found[name] = mine | self.found.get(name, {})

    def literal(self, lines: dict[str, ast.expr]) -> None:
        """Takes in those that were spelled out."""
        for line in lines.values():
            for x in ast.walk(line):
                if hasattr(x, "literal"):
                    self.note(*x.literal)

    def texts(self) -> list[str]:
        """The classes, inner ones first."""
        found: dict[str, str] = {}

        def write(name: str) -> None:
            if name in found or name not in self.found:
                return
            fields = self.found[name]
            for kind in map(self._kind, fields.values()):
                write(kind)
            lines = [f"    {k}: {self._kind(v)} = {ast.unparse(v)}" for k, v in fields.items()]
            head = ["@dataclasses.dataclass(frozen=True)", f"class {name}:"]
            found[name] = "\n".join([*head, *lines]) + "\n"

        for name in self.found:
            write(name)
        return [*found.values()]

    def _kind(self, value: ast.expr) -> str:
        match value:
            case ast.Call(func=ast.Name(id=name)):
                return name
            case ast.Tuple():
                return "tuple"
        return type(ast.literal_eval(value)).__name__
