"""The file in Flax's nnx."""

from __future__ import annotations

import ast
from typing import Any

from tojax.flax.codegen.blocks import Block
from tojax.flax.codegen.classes import LIST, Writer


def classes(writer: Writer, root: Block) -> list[str]:
    """The classes, inner ones first."""
    writer.make(root)
    texts: dict[str, str] = {}
    names: dict[Block, str] = {}

    def visit(block: Block) -> str:
        if block in names:
            return names[block]
        made = writer.make(block)
        fields = grouped(made.fields)
        lines = []
        for name, what in fields.items():
            lines.append(f"self.{name} = {built(what, visit)}")
        init = "\n".join("        " + x for x in lines) or "        pass"
        body = "\n".join(
            "        " + line
            for s in made.body
            for line in ast.unparse(ast.fix_missing_locations(s)).splitlines()
        )
        text = (f"(nnx.Module):\n    def __init__(self, *, rngs: nnx.Rngs):\n{init}\n\n"
                f"    def __call__(self, {', '.join(made.parameters)}):\n{body}\n")  # fmt: skip
        if text not in texts:
            name, count = made.name, 1
            while name in texts.values():
                count += 1
                name = f"{made.name}{count}"
            texts[text] = name
        names[block] = texts[text]
        return names[block]

    visit(root)
    return [f"class {name}{text}" for text, name in texts.items()]


def grouped(fields: dict[str, Any]) -> dict[str, Any]:
    """Dotted names as trees: {"layers": {"0": ..., "1": ...}}."""
    found: dict[str, Any] = {}
    for path, what in fields.items():
        path = f"{LIST}.{path}" if path[0].isdigit() else path
        *homes, last = path.split(".")
        inner = found
        for home in homes:
            inner = inner.setdefault(home, {})
        inner[last] = what
    return found


def built(what: Any, visit: Any) -> str:
    """The expression of a field."""
    if isinstance(what, Block):
        return f"{visit(what)}(rngs=rngs)"
    if isinstance(what, dict):
        if all(k.isdigit() for k in what):
            last = max(map(int, what))
            parts = [
                built(what[str(i)], visit) if str(i) in what else "None" for i in range(last + 1)
            ]
            if len(set(parts)) == 1 and len(parts) > 1:
                return f"nnx.List([{parts[0]} for _ in range({len(parts)})])"
            return f"nnx.List([{', '.join(parts)}])"
        return f"nnx.Dict({', '.join(f'{k}={built(v, visit)}' for k, v in what.items())})"
    return ast.unparse(ast.fix_missing_locations(what))
