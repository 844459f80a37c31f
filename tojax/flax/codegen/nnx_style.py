"""The file in Flax's nnx."""

from __future__ import annotations

import ast
from typing import Any

from tojax.flax.codegen.blocks import Block
from tojax.flax.codegen.classes import Writer
from tojax.flax.codegen.merging import Class, merged, text
from tojax.flax.codegen.template import expression


def classes(writer: Writer, root: Block) -> list[str]:
    """The texts of the classes, inner ones first; the whole's parameters have defaults."""
    found, configs = merged(writer, root)

    return [*configs.texts(), *(_class(x, x is found[-1]) for x in found)]


def _class(whole: Class, outermost: bool) -> str:
    lines = [f"self.{name} = {text(x)}" for name, x in whole.lines.items()]
    init = "\n".join("        " + x for x in lines) or "        pass"
    body = "\n".join(f"        {x}" for s in whole.made.body for x in text(s).splitlines())
    takes = "".join(f", {x}" for x in whole.made.parameters)
    given = [_default(name, values[0], outermost) for name, values in whole.parameters.items()]
    if whole.configured:
        kind = type(whole.instances[0].scope.config).__name__
        given.insert(0, f"config: {kind}" + (f" = {kind}()" if outermost else ""))
    arguments = ", ".join(["self", *given, "*", "rngs: nnx.Rngs"])
    return (
        f"class {whole.name}(nnx.Module):\n"
        f"    def __init__({arguments}):\n{init}\n\n"
        f"    def __call__(self{takes}):\n{body}\n"
    )


def _default(name: str, value: Any, outermost: bool) -> str:
    return f"{name}={ast.unparse(expression(value))}" if outermost else name
