"""Configurations: dataclasses with the fields that the classes read."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from anyjax.flax.codegen.author.evaluate import field_of
from anyjax.flax.codegen.python.templates import expression


@dataclass(frozen=True)
class Nested:
    """A configuration inside of another."""

    config: Any
    needs: dict[str, Any]


def config_argument(
    config: object, needs: dict[str, Any], outer_config: object
) -> tuple[ast.expr, dict[str, Any]]:
    """Returns the configuration for a class, and the fields that it needs of the outer one."""
    if outer_config is not None and _has_values(outer_config, needs):
        return ast.Name("config", ast.Load()), needs
    for name, member in vars(outer_config).items() if outer_config is not None else ():
        if hasattr(member, "__dict__") and (member is config or _has_values(member, needs)):
            attribute = ast.Attribute(ast.Name("config", ast.Load()), name, ast.Load())
            return attribute, {name: Nested(member, needs)}
    return _config_call(config, needs), {}


def add_fields(needs: dict[str, Any], new_fields: dict[str, Any]) -> None:
    """Adds fields that are read."""
    for name, value in new_fields.items():
        previous = needs.get(name)
        if isinstance(previous, Nested) and isinstance(value, Nested):
            inner = dict(previous.needs)
            add_fields(inner, value.needs)
            value = Nested(value.config, inner)
        needs[name] = value


def _has_values(config: object, needs: dict[str, Any]) -> bool:
    """Returns whether a configuration has these values."""
    if not hasattr(config, "to_dict") and not hasattr(config, "__dict__"):
        return False
    for name, value in needs.items():
        actual = field_of(config, name)
        if isinstance(value, Nested):
            if actual is None or not _has_values(actual, value.needs):
                return False
        elif actual != value:
            return False
    return True


def _config_call(config: object, needs: dict[str, Any]) -> ast.expr:
    """Returns the construction of a configuration with these fields."""
    words = [
        ast.keyword(
            k,
            _config_call(v.config, v.needs)
            if isinstance(v, Nested)
            else expression(_list_as_tuple(v)),
        )
        for k, v in needs.items()
    ]
    call = ast.Call(ast.Name(type(config).__name__, ast.Load()), [], words)
    call.literal = (config, needs)  # type: ignore[attr-defined]
    return call


def _list_as_tuple(value: object) -> Any:
    return tuple(value) if isinstance(value, list) else value


@dataclass
class Configs:
    """The dataclasses of a file: (field -> default) by name."""

    fields_by_class: dict[str, dict[str, Any]] = field(default_factory=dict)

    def record(self, config: object, needs: dict[str, Any]) -> None:
        """Records fields that are read of a configuration."""
        if not needs:
            return
        defaults: dict[str, Any] = {}
        for name, value in needs.items():
            if isinstance(value, Nested):
                self.record(value.config, value.needs)
                defaults[name] = ast.parse(f"{type(value.config).__name__}()", mode="eval").body
            else:
                defaults[name] = expression(_list_as_tuple(value))
        name = type(config).__name__
        self.fields_by_class[name] = defaults | self.fields_by_class.get(name, {})

    def record_literals(self, lines: dict[str, ast.expr]) -> None:
        """Records configurations that are constructed in lines."""
        for line in lines.values():
            for x in ast.walk(line):
                if hasattr(x, "literal"):
                    self.record(*x.literal)

    def texts(self) -> list[str]:
        """Returns the classes, inner ones first."""
        texts: dict[str, str] = {}

        def write(name: str) -> None:
            if name in texts or name not in self.fields_by_class:
                return
            fields = self.fields_by_class[name]
            for kind in map(self._kind, fields.values()):
                write(kind)
            lines = [f"    {k}: {self._kind(v)} = {ast.unparse(v)}" for k, v in fields.items()]
            head = ["@dataclasses.dataclass(frozen=True)", f"class {name}:"]
            texts[name] = "\n".join([*head, *lines]) + "\n"

        for name in self.fields_by_class:
            write(name)
        return [*texts.values()]

    def _kind(self, value: ast.expr) -> str:
        match value:
            case ast.Call(func=ast.Name(id=name)):
                return name
            case ast.Tuple():
                return "tuple"
        return type(ast.literal_eval(value)).__name__
