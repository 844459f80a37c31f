"""Values that models only compute where they are not compiled: arguments, and their own attributes.

    if attention_mask is None and not is_torchdynamo_compiling():
        attention_mask = torch.ones(batch_size, length)

    if not torch.compiler.is_compiling():
        self.systems = int(batch.max()) + 1
    return torch.zeros(self.systems).index_add(0, batch, energies)

``torch.compile`` would have them given, or take what an earlier call has left, and the code below
needs one. So such a line is told that nothing is compiled.
"""

from __future__ import annotations

import ast
import sys
from functools import lru_cache
from types import CodeType, FrameType

from anyjax.torch.compat.patches import replaces
from anyjax.torch.core import private
from anyjax.torch.data_dependent.source_line import test_at, tree_of

ASKED_THROUGH = {"is_torchdynamo_compiling", "is_compiling"}  # functions that hand the answer on


@replaces(private.ASKS_COMPILING)
def is_compiling(original):
    """Not where a value is made that is used."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_name in ASKED_THROUGH:
        frame = frame.f_back
    return original() and not (frame and makes_value(frame.f_code, frame.f_lineno))


@lru_cache(None)
def makes_value(code: CodeType, line: int) -> bool:
    """Returns whether the ``if`` on this line makes what the function uses."""
    statement = test_at(code, line)
    return isinstance(statement, ast.If) and (makes_default(statement) or keeps(code, statement))


def keeps(code: CodeType, statement: ast.If) -> bool:
    """Returns whether the ``if`` sets an attribute, where nothing is compiled, that is read after
    it.
    """
    asks = ast.unparse(statement.test)
    branch = statement.body if asks.startswith("not ") else statement.orelse
    if asks.removeprefix("not ").rpartition(".")[2].removesuffix("()") not in ASKED_THROUGH:
        return False
    attributes = [x for top in branch for x in ast.walk(top) if isinstance(x, ast.Attribute)]
    stored = {ast.unparse(x) for x in attributes if isinstance(x.ctx, ast.Store)}
    later = [
        x
        for x in ast.walk(tree_of(code) or ast.Module([], []))
        if isinstance(x, ast.Attribute) and x.lineno > (statement.end_lineno or 0)
    ]
    return any(isinstance(x.ctx, ast.Load) and ast.unparse(x) in stored for x in later)


def makes_default(statement: ast.If) -> bool:
    """Returns whether the ``if`` gives a value to a name that is None."""
    if statement.orelse:
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
