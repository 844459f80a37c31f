"""What a file says of itself: its first line, and what the outermost class takes."""

from __future__ import annotations

from typing import Any

from tojax.flax.codegen.graph.submodule_tree import Block
from tojax.flax.codegen.module.writer import Writer
from tojax.flax.codegen.python.sizes import DEFAULTS, symbolic
from tojax.flax.codegen.python.templates import DTYPES


def headline(name: str, style: str) -> str:
    """The file's docstring."""
    return f'"""{name} in {style}, written by tojax from its PyTorch module."""\n\n'


def documented(takes: Any) -> str:
    """A docstring of these lines; nothing of none."""
    if not takes:
        return ""
    first, *others = takes.splitlines()
    lines = [f'"""{first}', *others] if others else [f'"""{first}"""']
    return "".join(f"        {x}\n" for x in (*lines, *['"""'] * bool(others)))


def taken(writer: Writer, root: Block) -> str:
    """``input_ids: int32 (batch, length)`` and so on, equal sizes by one name."""
    made, names = writer.code_of(root), dict[Any, str]()
    parts = []
    for node, name in zip(made.inputs, made.parameters):
        value = node.meta["val"]
        usual = DEFAULTS.get(value.ndim, [f"size_{i}" for i in range(value.ndim)])
        sizes = [_size(x, said, names) for x, said in zip(value.shape, usual)]
        shape = f"({', '.join(sizes)}{',' * (len(sizes) == 1)})"
        parts.append(f"{name}: {DTYPES[value.dtype].removeprefix('jnp.').strip('_')} {shape}")
    return "\n".join(parts)


def _size(size: Any, usual: str, names: dict[Any, str]) -> str:
    """A number, or a size's name: the usual one, with a number where the example has another."""
    if not isinstance(symbolic(size), int):
        key = usual, size.node.hint
        count = sum(x == usual for x, _ in names)
        names.setdefault(key, f"{usual}_{count + 1}" if count else usual)
        return names[key]
    return str(symbolic(size))
