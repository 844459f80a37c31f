"""The author's source: the statement of a node, its targets, the names of sizes."""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import re
import textwrap
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

FRAME = re.compile(r'File "(.+?)", line (\d+)')


def frames_of(node: fx.Node) -> list[tuple[str, int]]:
    """Returns the file and line of each Python frame in which a node was made, innermost last."""
    frames = FRAME.findall(node.meta.get("stack_trace") or "")
    return [(file, int(line)) for file, line in frames]


def line_of(node: fx.Node) -> str:
    """Returns ``file.py:12``, where a node was made; "" if that is not known."""
    frames = frames_of(node)
    return "{}:{}".format(*frames[-1]) if frames else ""


@dataclass(frozen=True)
class Statement:
    """A simple statement of a forward function; equal if it is the same one.

    Attributes:
      line: its first line.
      targets: the names it assigns to, () where it assigns to none or to other things.
    """

    line: int
    targets: tuple[str, ...]


@dataclass(frozen=True)
class Forward:
    """A module class's forward function.

    Attributes:
      file, first, last: its file and lines.
      tree: its syntax tree, line numbers as in the file.
    """

    file: str
    first: int
    last: int
    tree: ast.FunctionDef

    def parameters(self) -> list[str]:
        """Returns the names of the parameters, self left out."""
        names = self.tree.args
        return [x.arg for x in (*names.posonlyargs, *names.args, *names.kwonlyargs)][1:]

    def statement(self, node: fx.Node) -> Statement | None:
        """Returns the statement of this function that a node comes from, None if there is none."""
        for file, line in reversed(frames_of(node)):
            if file == self.file and self.first <= line <= self.last:
                return _statement(self, line)
        return None

    def attributes(self) -> set[str]:
        """Returns the names X of all ``self.X`` in the function."""
        return {
            x.attr
            for x in ast.walk(self.tree)
            if isinstance(x, ast.Attribute)
            and isinstance(x.value, ast.Name)
            and x.value.id == "self"
        }

    def aliases(self) -> dict[str, str]:
        """Returns the second name of each value: ``residual = hidden_states``."""
        aliases: dict[str, str] = {}
        for x in ast.walk(self.tree):
            match x:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=source)):
                    aliases.setdefault(source, name)
        return aliases

    def unpacked(self) -> dict[str, list[str]]:
        """Returns the names of unpacked elements: ``cos, sin = position_embeddings``."""
        return {
            x.value.id: [t.id if isinstance(t, ast.Name) else "_" for t in x.targets[0].elts]
            for x in ast.walk(self.tree)
            if isinstance(x, ast.Assign)
            and isinstance(x.value, ast.Name)
            and isinstance(x.targets[0], ast.Tuple)
        }

    def sizes(self) -> dict[tuple[str, int], str]:
        """Returns the names of sizes by (array, dimension): ``batch, seq = x.shape[:2]``."""
        sizes: dict[tuple[str, int], str] = {}
        for x in ast.walk(self.tree):
            if not (isinstance(x, ast.Assign) and len(x.targets) == 1):
                continue
            target, (array, dim) = x.targets[0], _shape_source(x.value)
            if array is None:
                continue
            if isinstance(target, ast.Tuple) and dim is None:
                for i, name in enumerate(target.elts):
                    if isinstance(name, ast.Name) and not name.id.startswith("_"):
                        sizes.setdefault((array, i), name.id)
                    elif isinstance(name, ast.Starred):
                        break
            elif isinstance(target, ast.Name) and dim is not None:
                sizes.setdefault((array, dim), target.id)
        return sizes


def _shape_source(value: ast.expr) -> tuple[str | None, int | None]:
    """Returns (array, dimension) of ``x.shape``, ``x.size(1)`` or ``x.shape[:2]``."""
    dim: Any = None
    if isinstance(value, ast.Subscript):
        if isinstance(value.slice, ast.Constant) and isinstance(value.slice.value, int):
            dim = value.slice.value
        elif not (isinstance(value.slice, ast.Slice) and value.slice.lower is None):
            return None, None
        value = value.value
    match value:
        case ast.Call(func=ast.Attribute(attr="size", value=ast.Name(id=array)), args=args):
            constants: list[Any] = [x.value for x in args if isinstance(x, ast.Constant)]
            return array, (*constants, dim)[0]
        case ast.Attribute(attr="shape", value=ast.Name(id=array)):
            return array, dim
    return None, None


@functools.cache
def class_trees(cls: type) -> list[ast.Module]:
    """Returns the syntax trees of a module class and its bases, as far as there is source."""
    trees = []
    for base in cls.__mro__:
        if base in (object, torch.nn.Module):
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        except (OSError, TypeError, SyntaxError):
            continue
        for x in ast.walk(tree):
            for y in x.body if isinstance(x, ast.ClassDef) else ():
                if isinstance(y, ast.FunctionDef):
                    rename_first_to_self(y)
        trees.append(tree)
    return trees


def rename_first_to_self(function: ast.FunctionDef) -> None:
    """Renames the first parameter of a method to ``self``."""
    kinds = {ast.unparse(x) for x in function.decorator_list}
    first = next(iter((*function.args.posonlyargs, *function.args.args)), None)
    first = None if kinds & {"staticmethod", "classmethod"} else first
    names = [x for x in ast.walk(function) if isinstance(x, ast.Name)]
    if first is None or first.arg == "self" or any(x.id == "self" for x in names):
        return
    for x in names:
        x.id = "self" if x.id == first.arg else x.id
    first.arg = "self"


@functools.cache
def forward_of(cls: type[torch.nn.Module]) -> Forward | None:
    """Returns the ``forward`` of a class; None where there is no source."""
    function = inspect.unwrap(cls.forward)
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return None
    if not isinstance(tree, ast.FunctionDef):
        return None
    rename_first_to_self(tree)
    ast.increment_lineno(tree, first - 1)
    return Forward(inspect.getsourcefile(function) or "", first, first + len(lines) - 1, tree)


def helper_name(node: fx.Node) -> str:
    """Returns the name of a value in a function that forward calls, "" if it has none.

    A name belongs to the result of its statement, not to intermediate values.
    """
    for file, line in reversed(frames_of(node)):
        if "/torch/" in file or not (assignment := _assigned(file, line)):
            continue
        first, last, name = assignment
        lines = [n for user in node.users for f, n in frames_of(user) if f == file]
        return "" if any(first <= n <= last for n in lines) else name
    return ""


@functools.cache
def _assigned(file: str, line: int) -> tuple[int, int, str] | None:
    """Returns (first line, last line, name) of the assignment to one variable around a line."""
    for x in _assignments(file):
        if x.lineno <= line <= (x.end_lineno or 0) and isinstance(x.targets[0], ast.Name):
            return x.lineno, x.end_lineno or 0, x.targets[0].id
    return None


@functools.cache
def _assignments(file: str) -> list[ast.Assign]:
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return []
    return [x for x in ast.walk(tree) if isinstance(x, ast.Assign) and len(x.targets) == 1]


@functools.cache
def _statement(forward: Forward, line: int) -> Statement | None:
    """Returns the innermost simple statement around a line, or the head of a compound one."""
    statements = [x for x in ast.walk(forward.tree) if isinstance(x, ast.stmt)][1:]
    around = [x for x in statements if x.lineno <= line <= (x.end_lineno or 0)]
    best = max(reversed(around), key=lambda x: x.lineno, default=None)
    return None if best is None else Statement(best.lineno, _targets(best))


def _targets(statement: ast.stmt) -> tuple[str, ...]:
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
    elif isinstance(statement, (ast.AnnAssign, ast.AugAssign)):
        target = statement.target
    else:
        return ()
    names = target.elts if isinstance(target, ast.Tuple) else [target]
    return tuple(x.id if isinstance(x, ast.Name) else "" for x in names)
