"""Kinds of equations: two of one kind compute the same function of their operands."""

from __future__ import annotations

import functools
import types
from collections.abc import Collection, Hashable, Mapping
from types import CellType
from typing import Any

import jax
import numpy as np

from anyjax.jaxprs import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    WrappedFun,
    constants,
    is_program,
    opened,
)

MAX_DEPTH = 30  # of closures in closures; below it objects are compared by identity


class Kinds:
    """Numbers for kinds of equations. Equations with one number are the same function: primitive,
    parameters, differentiation rules, types of operands and results. Values of literals do not
    count.

    An equation with an effect, such as printing, has a number of its own.

    Example:
      >>> import jax.numpy as jnp
      >>> a, b, c = jax.make_jaxpr(lambda x: (x + 1, x + 2, x * 2))(1.0).eqns
      >>> kinds = Kinds()
      >>> kinds(a) == kinds(b), kinds(a) == kinds(c)
      (True, False)
    """

    def __init__(self) -> None:
        self.numbers: dict[Hashable, int] = {}
        self.forms: dict[int, tuple[Hashable, Any]] = {}  # the objects stay alive with their ids

    def __call__(self, eqn: JaxprEqn) -> int:
        operands = tuple((isinstance(v, Literal), v.aval) for v in eqn.invars)
        identity = id(eqn) if eqn.effects else None
        key = (identity, self._head(eqn), operands, tuple(v.aval for v in eqn.outvars))
        return self.numbers.setdefault(key, len(self.numbers))

    def number_with_marks(self, eqn: JaxprEqn, marked: Collection[Var]) -> int:
        """Returns a number that also depends on which operands are marked."""
        places = tuple(i for i, v in enumerate(eqn.invars) if isinstance(v, Var) and v in marked)
        return self.numbers.setdefault((self(eqn), places), len(self.numbers))

    def _head(self, eqn: JaxprEqn) -> Hashable:
        if id(eqn.params) not in self.forms:  # equations inlined many times share one dict
            params = tuple((k, self.form(v)) for k, v in sorted(eqn.params.items()))
            number = self.numbers.setdefault(("params", params), len(self.numbers))
            self.forms[id(eqn.params)] = number, eqn.params
        return eqn.primitive, eqn.ctx, self.forms[id(eqn.params)][0]

    def form(self, value: object, depth: int = 0) -> Hashable:
        """Returns a hashable object that is equal for equivalent values."""
        if is_program(value):
            if id(value) not in self.forms:
                program = self._program(value)
                number = self.numbers.setdefault(("jaxpr", program), len(self.numbers))
                self.forms[id(value)] = ("jaxpr", number), value
            return self.forms[id(value)][0]
        inner = functools.partial(self.form, depth=depth + 1)
        if isinstance(value, (tuple, list)):
            return type(value), tuple(map(inner, value))
        if isinstance(value, Mapping):
            return type(value), tuple((k, inner(v)) for k, v in value.items())
        if isinstance(value, (np.ndarray, np.generic)):
            return value.dtype, value.shape, value.tobytes()
        if isinstance(value, (float, complex)):
            return type(value), repr(value)  # NaN is itself, and 0.0 is not -0.0
        if depth < MAX_DEPTH and (content := _content(value)) is not None:
            return type(value), inner(content)
        return _identity(value)

    def _program(self, program: Jaxpr | ClosedJaxpr) -> Hashable:
        jaxpr = opened(program)
        equations = self._open(jaxpr) if jaxpr is program else self.form(jaxpr)
        return equations, tuple(map(self._constant, constants(program)))

    def _constant(self, array: jax.Array | np.ndarray) -> Hashable:
        small = isinstance(array, jax.Array) and array.size <= 1024
        concrete = small and not isinstance(array, jax.core.Tracer)
        if concrete and not jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
            array = np.asarray(array)
        return self.form(array) if isinstance(array, np.ndarray) else id(array)

    def _open(self, jaxpr: Jaxpr) -> Hashable:
        """Returns the equations with variables numbered in order of appearance."""
        numbers: dict[Any, int] = {}
        number = lambda v: (numbers.setdefault(v, len(numbers)), v.aval)

        def read(v: Var | Literal) -> Hashable:
            return (self.form(np.asarray(v.val)), v.aval) if isinstance(v, Literal) else number(v)

        heads = tuple(map(number, (*jaxpr.constvars, *jaxpr.invars)))
        body = tuple(
            (self._head(e), tuple(map(read, e.invars)), tuple(map(number, e.outvars)))
            for e in jaxpr.eqns
        )
        identity = id(jaxpr) if jaxpr.effects else None
        return identity, heads, body, tuple(map(read, jaxpr.outvars))


def _content(value: Any) -> Any:
    """Returns the code and closure of a function, None for other objects: functions of the same
    line are equal if they close over equal values.
    """
    if isinstance(value, functools.partial):
        return value.func, value.args, value.keywords
    if isinstance(value, types.MethodType):
        return value.__func__, value.__self__
    if isinstance(value, types.FunctionType):
        cells = tuple(map(_cell_content, value.__closure__ or ()))
        module = id(value.__globals__)  # several modules may have equal code
        return value.__code__, module, value.__defaults__, value.__kwdefaults__, cells
    if isinstance(value, slice):
        return value.start, value.stop, value.step
    if type(value).__name__ == "Unhashable":  # JAX's box around a static argument
        return value.val
    if isinstance(value, WrappedFun):
        return value.f, value.transforms, value.params, value.in_type
    return None


def _cell_content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return cell


def _identity(value: object) -> Hashable:
    """Returns the value itself with its type, its id if it has no hash."""
    kind: Any = type(value)
    if kind is object or (kind is not WrappedFun and kind.__module__ == WrappedFun.__module__):
        return kind  # sentinels, and JAX's stores for the structure of a result
    try:
        hash(value)
    except TypeError:
        return id(value)
    return type(value), value
