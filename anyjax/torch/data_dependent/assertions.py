"""Checks of values that only raise, which a compiled program cannot make:

    assert (x >= 0).all(), "negative"

    if torch.isnan(x).any():
        raise ValueError("NaN")

Their condition is answered so that nothing is raised; ``len(torch.unique_consecutive(x)) > 1``
finds one value.

Conditions that torch raises without, in its own code or transformers', become part of the program:

    torch_compilable_check(image_tokens == features.shape[0], "do not match")

A program cannot raise: where one fails, it gives NaN for floats, and ``model(...)`` raises.
"""

from __future__ import annotations

import ast
import operator
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import jax
import numpy as np
import torch

from anyjax import warn_once
from anyjax.errors import UncheckedValues
from anyjax.torch.core import current_trace, private
from anyjax.torch.core.lifting import inner
from anyjax.torch.core.tensor import JaxTensor
from anyjax.torch.data_dependent.source_line import test_at

LEFT_OUT = (
    "this check of values is not in the compiled program, which knows none; "
    "model.apply outside jax.jit makes it"
)
# They may ask for other conditions than the one that is written; what they return is compared.
FUNCTIONS = {"bool", "int", "float", "max", "min", "sorted"}
COMPARISONS = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def left_out(stacklevel: int) -> None:
    """Says that a check is not made."""
    warn_once.warn(LEFT_OUT, UncheckedValues, sys._getframe(stacklevel))


def passing_at(frame: FrameType | None) -> bool | None:
    """Returns the value of the condition with which the check passes; None if this is no check."""
    check = _check_at(frame)
    if check is None or any(_hides(node) for node in ast.walk(check.test)):
        return None
    answers = {outcome for _, outcome in _conditions(check.test, isinstance(check, ast.Assert))}
    return answers.pop() if len(answers) == 1 else None


def alike_at(frame: FrameType | None) -> bool:
    """Returns whether this is a check that passes where a ``unique`` finds one value, by its
    length.
    """
    check = _check_at(frame)
    conditions = _conditions(check.test, isinstance(check, ast.Assert)) if check else ()
    return any(_of_one(x) is outcome for x, outcome in conditions)


def _of_one(condition: ast.expr) -> bool | None:
    """Returns a comparison of a length for a length of one; None for other conditions."""
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
        return None  # torch's own: the patches of compat serve them
    statement = test_at(frame.f_code, frame.f_lineno)
    return (
        statement
        if isinstance(statement, ast.Assert) or (statement and _only_raises(statement.body))
        else None
    )


def _only_raises(body: list[ast.stmt]) -> bool:
    *preparation, last = body
    return isinstance(last, ast.Raise) and all(isinstance(x, ast.Assign) for x in preparation)


def _hides(node: ast.AST) -> bool:
    """Returns whether the condition asked for may be another one than the statement's."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS
    if isinstance(node, ast.Compare):
        return any(isinstance(op, (ast.In, ast.NotIn)) for op in node.ops)
    return isinstance(node, (ast.IfExp, ast.NamedExpr, ast.Lambda))


def _conditions(test: ast.expr, wanted: bool) -> Iterator[tuple[ast.expr, bool]]:
    """Yields each condition in ``test``, and what it has to be for ``test`` to be ``wanted``."""
    if isinstance(test, ast.BoolOp):
        for operand in test.values:
            yield from _conditions(operand, wanted)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _conditions(test.operand, not wanted)
    else:
        yield test, wanted


def asking_trace() -> Any:
    """Returns the trace that runs the code which asks; None in code that torch keeps to itself."""
    modes = private.function_modes()
    return next((mode.trace for mode in reversed(modes) if hasattr(mode, "trace")), None)


def note(condition: torch.Tensor) -> None:
    """The program gives numbers only where all of the condition holds, unless the code that asks
    is traced on its own, as a loop's body is.
    """
    trace = asking_trace()
    value = None if trace is None or trace.conditions is None else inner(condition.all())
    if not isinstance(value, JaxTensor):
        left_out(5)
    elif isinstance(value.array, jax.core.Tracer):
        trace.conditions.append(value.array)


def require(array: object, holds: Callable[[Any], Any], what: str) -> None:
    """A condition on an array that torch raises without, in a lowering.

    Raises:
      ValueError: the array is known, and the condition does not hold for all of it.
    """
    if not isinstance(array, jax.core.Tracer):
        if not holds(np.asarray(array)).all():
            raise ValueError(what)
        return
    trace = current_trace.trace()
    if trace is not None and trace.conditions is not None:
        trace.conditions.append(holds(array).all())
    else:
        left_out(2)
