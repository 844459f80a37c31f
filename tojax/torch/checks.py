"""Checks of values that only raise, which a compiled program cannot make:

    assert (x >= 0).all(), "negative"

    if torch.isnan(x).any():
        raise ValueError("NaN")

Their condition is answered so that nothing is raised: ``x.max().item() <= 5`` is what the check
passes with, as is ``x[mask].shape[0]``; ``len(torch.unique_consecutive(x)) > 1`` finds one value.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Iterator
from types import FrameType

from tojax.errors import UncheckedValues
from tojax.torch.guards import test_at

LEFT_OUT = (
    "this check of values is not in the compiled program, which knows none; "
    "model.apply outside jax.jit makes it"
)
NUMBERS = {"bool", "int", "float"}  # what they return is a number, and may be compared
COMPARISONS = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class Compared:
    """A number that only the program knows; comparisons of it are what the check passes with."""

    def __init__(self, passing: bool):
        self.passing = passing

    def _computed(self, _) -> Compared:
        return self

    def _passes(self, _) -> bool:
        return self.passing

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _passes
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _computed
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = _computed
    __hash__ = None  # type: ignore[assignment]


def left_out(stacklevel: int) -> None:
    """Says that a check is not made."""
    warnings.warn(LEFT_OUT, UncheckedValues, stacklevel=stacklevel + 1)


def passing_at(frame: FrameType | None) -> bool | None:
    """What the condition asked for here is where the check passes; None if this is no check."""
    check = _check_at(frame)
    if check is None or any(_hides(node) for node in ast.walk(check.test)):
        return None
    answers = {wanted for _, wanted in _conditions(check.test, isinstance(check, ast.Assert))}
    return answers.pop() if len(answers) == 1 else None


def compared_at(frame: FrameType | None) -> Compared | None:
    """What a number such as ``x.item()`` is here where a check compares it, or what is computed of
    it; None if this is no such check.
    """
    check, passing = _check_at(frame), passing_at(frame)
    if check is None or passing is None:
        return None
    conditions = [x for x, _ in _conditions(check.test, True)]
    inner = [y for x in conditions for side in ast.iter_child_nodes(x) for y in ast.walk(side)]
    alone = all(isinstance(x, ast.Compare) for x in conditions)
    shapes = {x for x in inner if isinstance(x, ast.Attribute) and x.attr == "shape"}
    whole = shapes - {x.value for x in inner if isinstance(x, ast.Subscript)}
    return None if whole or not alone or any(map(_decides, inner)) else Compared(passing)


def alike_at(frame: FrameType | None) -> bool:
    """Whether this is a check that passes where a ``unique`` finds one value, by its length."""
    check = _check_at(frame)
    conditions = _conditions(check.test, isinstance(check, ast.Assert)) if check else ()
    return any(_of_one(x) is wanted for x, wanted in conditions)


def _of_one(condition: ast.expr) -> bool | None:
    """What a comparison of a length is for a length of one; None for other conditions."""
    match condition:
        case ast.Compare(
            left=ast.Call(func=ast.Name(id="len"), args=[ast.Call()])
            | ast.Call(func=ast.Attribute(value=ast.Call(), attr="numel")),
            ops=[comparison],
            comparators=[ast.Constant(value=int(number))],
        ) if type(comparison) in COMPARISONS:
            return COMPARISONS[type(comparison)](1, number)
    return None


def _check_at(frame: FrameType | None) -> ast.If | ast.Assert | None:
    if frame is None or frame.f_globals.get("__name__", "").startswith("torch."):
        return None  # torch's own: distributions.py and patches.py serve them
    found = test_at(frame.f_code, frame.f_lineno)
    return found if isinstance(found, ast.Assert) or (found and _only_raises(found.body)) else None


def _only_raises(body: list[ast.stmt]) -> bool:
    *before, last = body
    return isinstance(last, ast.Raise) and all(isinstance(x, ast.Assign) for x in before)


def _hides(node: ast.AST) -> bool:
    """Whether the condition asked for may be another one than the statement's."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in NUMBERS
    return isinstance(node, (ast.IfExp, ast.NamedExpr, ast.Lambda))


def _decides(node: ast.AST) -> bool:
    """Whether a number's comparison here may be another one than the condition's."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name)
    return isinstance(node, (ast.Compare, ast.BoolOp))


def _conditions(test: ast.expr, wanted: bool) -> Iterator[tuple[ast.expr, bool]]:
    """Each condition in ``test``, and what it has to be for ``test`` to be ``wanted``."""
    if isinstance(test, ast.BoolOp):
        for part in test.values:
            yield from _conditions(part, wanted)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _conditions(test.operand, not wanted)
    else:
        yield test, wanted
