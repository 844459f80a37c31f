"""The docstrings of a file: its headline, and the inputs of the outermost class."""

from __future__ import annotations

import torch

from anyjax.flax.codegen.graph.submodule_tree import Block
from anyjax.flax.codegen.module.writer import Writer
from anyjax.flax.codegen.python.sizes import DEFAULTS, symbolic
from anyjax.flax.codegen.python.templates import DTYPES


def headline(name: str, style: str) -> str:
    """Returns the file's docstring."""
    return f'"""{name} in {style}, written by anyjax from its PyTorch module."""\n\n'


def docstring(takes: str) -> str:
    """Returns a docstring with these lines; "" for none."""
    if not takes:
        return ""
    first, *further_lines = takes.splitlines()
    lines = [f'"""{first}', *further_lines] if further_lines else [f'"""{first}"""']
    return "".join(f"        {x}\n" for x in (*lines, *['"""'] * bool(further_lines)))


def described_parameters(writer: Writer, root: Block) -> str:
    """Returns ``input_ids: int32 (batch, length)`` and so on, equal sizes by one name."""
    code, names = writer.code_of(root), dict[tuple, str]()
    lines = []
    for node, name in zip(code.inputs, code.parameters):
        value = node.meta["val"]
        usual_names = DEFAULTS.get(value.ndim, [f"size_{i}" for i in range(value.ndim)])
        sizes = [_size(x, usual_name, names) for x, usual_name in zip(value.shape, usual_names)]
        shape = f"({', '.join(sizes)}{',' * (len(sizes) == 1)})"
        lines.append(f"{name}: {DTYPES[value.dtype].removeprefix('jnp.').strip('_')} {shape}")
    return "\n".join(lines)


def _size(size: torch.SymInt, usual: str, names: dict[tuple, str]) -> str:
    """Returns a number, or the usual name of a size, numbered if the example has several of it."""
    if not isinstance(symbolic(size), int):
        key = usual, size.node.hint
        count = sum(x == usual for x, _ in names)
        names.setdefault(key, f"{usual}_{count + 1}" if count else usual)
        return names[key]
    return str(symbolic(size))
