"""Checks of values that only raise, which a compiled program cannot make:

    assert (x >= 0).all(), "negative"

    if torch.isnan(x).any():
        raise ValueError("NaN")

Their condition is answered so that nothing is raised.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FrameType

from tojax.torch.guards import test_at

LEFT_OUT = (
    "this check of values is not in the compiled program, which knows none; "
    "model.apply outside jax.jit makes it"
)
NUMBERS = {"bool", "int", "float"}  # what they return is a number, and may be compared


def passing_at(frame: FrameType | None) -> bool | None:
    """What the condition asked for here is where the check passes; None if this is no check."""
    if frame is None or frame.f_globals["__name__"].startswith("torch."):
        return None  # torch's own: distributions.py and patches.py serve them
    found = test_at(frame.f_code, frame.f_lineno)
    if found is None or not (isinstance(found, ast.Assert) or _only_raises(found.body)):
        return None
    if any(_hides(node) for node in ast.walk(found.test)):
        return None
    answers = set(_answers(found.test, isinstance(found, ast.Assert)))
    return answers.pop() if len(answers) == 1 else None


def _only_raises(body: list[ast.stmt]) -> bool:
    *before, last = body
    return isinstance(last, ast.Raise) and all(isinstance(x, ast.Assign) for x in before)


def _hides(node: ast.AST) -> bool:
    """Whether the condition asked for may be another one than the statement's."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in NUMBERS
    return isinstance(node, (ast.IfExp, ast.NamedExpr, ast.Lambda))


def _answers(test: ast.expr, wanted: bool) -> Iterator[bool]:
    """What each condition in ``test`` has to be for it to be ``wanted``."""
    if isinstance(test, ast.BoolOp):
        for part in test.values:
            yield from _answers(part, wanted)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _answers(test.operand, not wanted)
    else:
        yield wanted
