"""``if mask.any(): x[mask] = value``: what changes nothing for an empty mask is always done."""

from __future__ import annotations

import ast
import contextlib
import functools
import linecache
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from tojax.flax.codegen.graph.private import FakeTensor


@contextlib.contextmanager
def always(module: torch.nn.Module) -> Iterator[list[str]]:
    """While this is open, calls of the module go into such branches; gives the lines of these."""
    mode = _Always()
    handles = [
        module.register_forward_pre_hook(lambda *_: mode.__enter__() and None),
        module.register_forward_hook(lambda *_: mode.__exit__(None, None, None), always_call=True),
    ]
    try:
        yield mode.taken
    finally:
        for handle in handles:
            handle.remove()


class _Always(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.taken: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") == "__bool__" and isinstance(args[0], FakeTensor):
            frame = sys._getframe(1)
            path, line = frame.f_code.co_filename, frame.f_lineno
            mask = frame.f_locals.get(neutral_lines(path).get(line, ""))
            if isinstance(mask, torch.Tensor) and mask.dtype == torch.bool:  # no indices
                self.taken.append(f"{path}:{line}")
                return True
        return func(*args, **(kwargs or {}))


@functools.cache
def neutral_lines(path: str) -> dict[int, str]:
    """The lines that ask whether a mask is empty and only write to its places, with its name."""
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except SyntaxError:
        return {}
    branches = [x for x in ast.walk(tree) if isinstance(x, ast.If) and not x.orelse]
    return {x.lineno: m for x in branches if (m := _asked(x.test)) and _neutral(x.body, m)}


def _asked(test: ast.expr) -> str:
    """``mask`` of ``mask.any()`` and ``torch.any(mask)``"""
    match test:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr="any"),
                      args=[ast.Name(id=mask)], keywords=[]):  # fmt: skip
            return mask
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=mask), attr="any"), args=[], keywords=[]
        ):
            return mask
    return ""


def _neutral(body: list[ast.stmt], mask: str) -> bool:
    """Whether each statement leaves everything as it is where the mask is empty."""

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
