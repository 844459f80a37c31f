"""Repairs that models guard by a look at the values:

    if not torch.isfinite(x).all():
        x = torch.clamp(x, min=-limit, max=limit)

A compiled program computes both and selects. Only an ``if`` whose body is one such assignment is
served: its source says so.
"""

from __future__ import annotations

import ast
from types import CodeType, FrameType

import torch

from anyjax.torch.data_dependent.source_line import test_at

CLAMPS = {torch.clamp, torch.Tensor.clamp, torch.clip, torch.Tensor.clip}


class Guard:
    """A condition that was asked for; the clamp that follows is the body of its ``if``."""

    def __init__(self, condition: torch.Tensor, entered: bool):
        self.condition, self.entered = condition, entered

    def select(self, func, args, kwargs) -> torch.Tensor:
        """Selects between the tensor and its clamped value, by the condition of the ``if``."""
        repaired = func(*args, **kwargs)
        chosen = (repaired, args[0]) if self.entered else (args[0], repaired)
        return torch.where(self.condition, *chosen)


def guard_at(frame: FrameType | None, condition: torch.Tensor) -> Guard | None:
    """Returns the guard that asks for a condition's value here; None if it is none."""
    entered = None if frame is None else _entered(frame.f_code, frame.f_lineno)
    return None if entered is None else Guard(condition, entered)


def _entered(code: CodeType, line: int) -> bool | None:
    """For which value the body of the ``if`` on this line runs; None if that is no guard."""
    statement = test_at(code, line)
    if not isinstance(statement, ast.If) or statement.orelse or not _repairs(statement.body):
        return None
    test = statement.test
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        *earlier, test = test.values
        if any(isinstance(x, ast.Call) for condition in earlier for x in ast.walk(condition)):
            return None  # which of them asks is not known
    negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    question = test.operand if isinstance(test, ast.UnaryOp) else test
    return not negated if isinstance(question, ast.Call) else None


def _repairs(body: list[ast.stmt]) -> bool:
    """Returns whether these lines only replace one tensor by a clamp of it."""
    *preparation, last = body
    numbers = all(
        isinstance(x, ast.Assign) and "torch.finfo(" in ast.unparse(x) for x in preparation
    )
    if not numbers or not isinstance(last, ast.Assign) or len(last.targets) != 1:
        return False
    name, value = ast.unparse(last.targets[0]), last.value
    if not name.isidentifier() or not isinstance(value, ast.Call):
        return False
    called, first = ast.unparse(value.func), ast.unparse(value.args[0]) if value.args else ""
    return called == f"{name}.clamp" or (called == "torch.clamp" and first == name)
