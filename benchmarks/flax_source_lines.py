"""Lines of code: those of a text, and those of a module's own files that ran."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections import defaultdict
from collections.abc import Callable

import torch


def own_files(module: torch.nn.Module) -> set[str]:
    """The files of the module's classes that are not torch's."""
    classes = {type(m) for m in module.modules()}
    own = [c for c in classes if not c.__module__.startswith("torch.")]
    return {inspect.getsourcefile(c) or "" for c in own}


def code_lines(text: str) -> int:
    """Lines that are not blank, no comment and no docstring."""
    return len(_code(ast.parse(text), text, None))


def ran(files: set[str], call: Callable[[], object], only: str | None = None):
    """{(file, first line of a function): lines that ran}; ``only`` is the functions' name."""
    found: dict[tuple[str, int], set[int]] = defaultdict(set)

    def local(frame, event, _):
        if event == "line":
            found[frame.f_code.co_filename, frame.f_code.co_firstlineno].add(frame.f_lineno)
        return local

    def outer(frame, event, _):
        code = frame.f_code
        wanted = code.co_filename in files and only in (None, code.co_name)
        if wanted:
            found[code.co_filename, code.co_firstlineno].add(code.co_firstlineno)
        return local if wanted else None

    before = sys.gettrace()
    sys.settrace(outer)
    try:
        with torch.no_grad():
            call()
    finally:
        sys.settrace(before)
    return found


def lines_run(module: torch.nn.Module, build: Callable, forward: Callable) -> int:
    """How many lines of code of the module's own files ran in both."""
    files = own_files(module)
    lines: dict[str, set[int]] = defaultdict(set)
    for found in (ran(files, build, "__init__"), ran(files, forward)):
        for (file, _), hit in found.items():
            lines[file] |= hit
    count = 0
    for file, hit in lines.items():
        with open(file, encoding="utf-8") as stream:
            text = stream.read()
        count += len(_code(ast.parse(text), text, hit))
    return count


def _code(tree: ast.AST, text: str, hit: set[int] | None) -> set[int]:
    """Lines of the statements that have a line in ``hit``, or of all; and of the heads around."""
    lines = textwrap.dedent(text).splitlines()
    found: set[int] = set()

    def visit(node: ast.AST) -> bool:
        """Whether something of it ran."""
        some = False
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
                some |= visit(child)
        if not isinstance(node, (ast.stmt, ast.ExceptHandler)) or _docstring(node):
            return some
        body = getattr(node, "body", None)
        last = body[0].lineno - 1 if isinstance(body, list) else node.end_lineno
        last = max(last, node.lineno)
        decorators = getattr(node, "decorator_list", [])
        head = range(min([node.lineno, *(d.lineno for d in decorators)]), last + 1)
        definition = isinstance(node, (ast.ClassDef, ast.FunctionDef))
        if hit is None or (some if definition else some or not hit.isdisjoint(head)):
            found.update(head)
            some = True
        return some

    visit(tree)
    kept = lambda i: (line := lines[i - 1].strip()) and not line.startswith("#")
    return {i for i in found if kept(i)}


def _docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
