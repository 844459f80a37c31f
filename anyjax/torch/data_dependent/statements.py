"""Statements that values decide: which of them are to be rewritten, and where they run so.

The run of a trace in which a loop or an ``if`` asks for a condition ends, and the next one has the
function around it with another code object (rewriting.py), which gives the same results outside of
traces. What its functions do is in control_flow/statements.py.
"""

from __future__ import annotations

import ast
import contextlib
import gc
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

from anyjax.torch.core.current_trace import GIVES_UP, SERVED, Restart
from anyjax.torch.data_dependent.rewriting import Statement, function_of, nodes_of, rewritten
from anyjax.torch.data_dependent.source_line import ORIGINAL

FEW = 2  # conditions of one way, which are asked one in the other


class Place(NamedTuple):
    """A loop or an ``if``: the code of the function around it, and its first line."""

    code: CodeType
    line: int


class Needs(Restart):
    """A statement asks for a condition that only the program knows."""

    def __init__(self, place: Place):
        self.place = place

    def remember(self, notes: dict) -> None:
        """Keeps the statement beside the others of its function."""
        notes.setdefault(Needs, {}).setdefault(self.place.code, set()).add(self.place.line)
        notes.setdefault(SERVED, {})[served] = True
        notes[GIVES_UP] = given_up


def given_up(notes: dict) -> bool:
    """Keeps all statements but ``while`` as they are from now on: their ways and turns follow each
    other. Returns whether there are any.
    """
    any_left = False
    for code, lines in notes.get(Needs, {}).items():
        for line in [*lines]:
            if not any(
                isinstance(x, ast.While) and x.lineno == line for x in statements_around(code, line)
            ):
                lines.discard(line)
                notes.setdefault(given_up, set()).add(Place(code, line))
                any_left = True
    return any_left


@contextlib.contextmanager
def served(notes: dict) -> Iterator[None]:
    """Gives the functions around statements their other code."""
    swapped = []
    for code, lines in notes.get(Needs, {}).items():
        new: Any = rewritten(code, frozenset(lines))
        functions = [x for x in gc.get_referrers(code) if isinstance(x, FunctionType)]
        for function in functions if new else ():
            if function.__code__ is code:  # once, if traces nest
                function.__code__ = new
                swapped.append((function, code))
    try:
        yield
    finally:
        for function, code in swapped:
            function.__code__ = code


def asking(frame: FrameType | None, notes: dict, joins: bool, full: bool) -> Place | None:
    """Returns the statement that is to be rewritten: a loop for its own condition, an ``if`` where
    ways are to join or others are rewritten already, any loop around where the way is ``full``.
    """
    if full:
        while frame is not None:
            if place := _first(frame, notes, lambda x: not isinstance(x, ast.If)):
                return place
            frame = frame.f_back
        return None
    assert frame is not None
    line = frame.f_lineno
    joins |= any(notes.get(Needs, {}).values())
    return _first(frame, notes, lambda x: asks(x, line, joins))


def over_a_range(frame: FrameType, notes: dict) -> Place | None:
    """Returns the ``for`` on this line, whose range asks for a number."""
    line = frame.f_lineno
    asks_here = lambda x: (
        isinstance(x, ast.For) and x.iter.lineno <= line <= (x.iter.end_lineno or line)
    )
    return _first(frame, notes, asks_here)


def _first(frame: FrameType, notes: dict, wants: Callable[[Statement], bool]) -> Place | None:
    code = ORIGINAL.get(frame.f_code, frame.f_code)
    done = notes.get(Needs, {}).get(code, set())
    for statement in statements_around(code, frame.f_lineno):
        place = Place(code, statement.lineno)
        if place.line in done or place in notes.get(given_up, ()) or not wants(statement):
            continue
        if rewritten(code, frozenset({*done, place.line})):
            return place
    return None


def asks(statement: Statement, line: int, joins: bool) -> bool:
    """Returns whether a line is the test of a ``while``, of an ``if`` that leaves a loop, or of one
    whose ways join again.
    """
    spans = lambda x: x.lineno <= line <= (x.end_lineno or x.lineno)
    if not isinstance(statement, ast.For) and spans(statement.test):
        return joins or isinstance(statement, ast.While)
    if isinstance(statement, ast.If):
        return False
    ends = [x for x in nodes_of(statement.body) if isinstance(x, ast.If) and spans(x.test)]
    leaves = (ast.Break, ast.Return)
    return any(isinstance(y, leaves) for x in ends for y in (*x.body, *x.orelse))


@lru_cache(None)
def statements_around(code: CodeType, line: int) -> list[Statement]:
    """Returns the loops and branches of a function around a line, the innermost first."""
    tree = function_of(code)
    nodes = ast.walk(tree) if tree is not None else ()
    statements: list[Statement] = [x for x in nodes if isinstance(x, (ast.While, ast.For, ast.If))]
    return [x for x in statements[::-1] if x.lineno <= line <= (x.end_lineno or x.lineno)]
