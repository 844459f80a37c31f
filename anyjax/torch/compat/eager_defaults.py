"""Arguments that models only make for themselves where they are not compiled:

    if attention_mask is None and not is_torchdynamo_compiling():
        attention_mask = torch.ones(batch_size, length)

``torch.compile`` would have them given, and the code below needs one. So such a line is told that
nothing is compiled.
"""

from __future__ import annotations

import ast
import sys
from functools import lru_cache
from types import CodeType, FrameType

from anyjax.torch.compat.patches import replaces
from anyjax.torch.core import private
from anyjax.torch.data_dependent.source_line import test_at

ASKED_THROUGH = {"is_torchdynamo_compiling", "is_compiling"}  # functions that hand the answer on


@replaces(private.ASKS_COMPILING)
def is_compiling(original):
    """Not where a default is made."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_name in ASKED_THROUGH:
        frame = frame.f_back
    return original() and not (frame and makes_default(frame.f_code, frame.f_lineno))


@lru_cache(None)
def makes_default(code: CodeType, line: int) -> bool:
    """Returns whether the ``if`` on this line gives a value to a name that is None."""
    statement = test_at(code, line)
    if not isinstance(statement, ast.If) or statement.orelse:
        return False
    conditions = statement.test.values if isinstance(statement.test, ast.BoolOp) else []
    if not conditions or not isinstance(statement.test.op, ast.And):  # type: ignore[attr-defined]
        return False
    missing = {ast.unparse(x.left) for x in conditions if _is_none(x)}  # type: ignore[attr-defined]
    assigned = {
        ast.unparse(t) for x in statement.body if isinstance(x, ast.Assign) for t in x.targets
    }
    return bool(missing & assigned) and any(_is_not(x) for x in conditions)


def _is_none(test: ast.expr) -> bool:
    match test:
        case ast.Compare(ops=[ast.Is()], comparators=[ast.Constant(value=None)]):
            return True
    return False


def _is_not(test: ast.expr) -> bool:
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
