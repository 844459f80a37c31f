"""``if mask.any(): x[mask] = value``: always done, as it changes nothing for an empty mask."""

from __future__ import annotations

import ast
import contextlib
import functools
import linecache
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from anyjax.compare.recorders.torch_calls import watched
from anyjax.flax.codegen.graph.private import FakeTensor


@contextlib.contextmanager
def take_mask_branches(module: torch.nn.Module) -> Iterator[list[str]]:
    """Makes calls of the module enter such branches; yields the lines where they do."""
    mode = _MaskBranches()
    enter, leave = lambda *_: mode.__enter__(), lambda *_: mode.__exit__(None, None, None)
    with watched([("", module)], enter, leave):
        yield mode.lines


class _MaskBranches(TorchFunctionMode):
    """A mode in which ``bool(mask.any())`` is True on lines that only write where the mask is."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def __torch_function__(
        self, func: Callable, types: object, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        if getattr(func, "__name__", "") == "__bool__" and isinstance(args[0], FakeTensor):
            frame = sys._getframe(1)
            path, line = frame.f_code.co_filename, frame.f_lineno
            mask = frame.f_locals.get(neutral_lines(path).get(line, ""))
            if isinstance(mask, torch.Tensor) and mask.dtype == torch.bool:  # no indices
                self.lines.append(f"{path}:{line}")
                return True
        return func(*args, **(kwargs or {}))


@functools.cache
def neutral_lines(path: str) -> dict[int, str]:
    """Returns, by line, the name of each mask that an ``if`` tests and whose places alone its body
    writes to.
    """
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except SyntaxError:
        return {}
    branches = [x for x in ast.walk(tree) if isinstance(x, ast.If) and not x.orelse]
    return {
        x.lineno: m for x in branches if (m := _tested_mask(x.test)) and _only_writes_at(x.body, m)
    }


def _tested_mask(test: ast.expr) -> str:
    """Returns ``mask`` of ``mask.any()`` and ``torch.any(mask)``, "" for other tests."""
    match test:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr="any"),
                      args=[ast.Name(id=mask)], keywords=[]):  # fmt: skip
            return mask
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=mask), attr="any"), args=[], keywords=[]
        ):
            return mask
    return ""


def _only_writes_at(body: list[ast.stmt], mask: str) -> bool:
    """Returns whether each statement changes nothing where the mask is empty."""

    def writes(statement: ast.stmt) -> bool:
        match statement:
            case ast.Assign(targets=[ast.Subscript(slice=ast.Name(id=name))]):
                return name == mask
            case ast.AugAssign(target=ast.Subscript(slice=ast.Name(id=name))):
                return name == mask
            case ast.Expr(ast.Call(func=ast.Attribute(attr="masked_fill_"),
                                   args=[ast.Name(id=name), _])):  # fmt: skip
                return name == mask
            case ast.Assign(
                targets=[ast.Name(id=target)],
                value=ast.Call(
                    func=ast.Attribute(value=ast.Name(id=base), attr="masked_fill"),
                    args=[ast.Name(id=name), _],
                ),
            ):
                return name == mask and target == base != mask
        return False

    return all(map(writes, body))
