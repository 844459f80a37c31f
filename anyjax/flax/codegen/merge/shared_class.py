"""A class that several modules share, and these modules."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from anyjax.flax.codegen.author.evaluate import Scope
from anyjax.flax.codegen.graph.submodule_tree import Block
from anyjax.flax.codegen.module.class_code import ClassCode


@dataclass(eq=False)
class Instance:
    """A module as an instance of a class.

    Attributes:
      scope: the author's constructor and its values.
      lines: the lines of the constructor, by attribute.
      needs: the fields of the configuration that it reads, with their values.
    """

    block: Block
    scope: Scope
    lines: dict[str, ast.expr]
    needs: dict[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class Class:
    """A class that several modules share.

    Attributes:
      code: its ``__call__``.
      parameters: parameters of the constructor, with each module's value.
      lines: the lines of the constructor, by attribute, in terms of its parameters.
    """

    name: str
    code: ClassCode
    instances: list[Instance]
    parameters: dict[str, list[Any]] = field(default_factory=dict)
    lines: dict[str, ast.expr] = field(default_factory=dict)

    @property
    def configured(self) -> bool:
        return any(x.needs for x in self.instances)
