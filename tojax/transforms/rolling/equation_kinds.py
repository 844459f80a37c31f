"""Whether two equations of a jaxpr compute the same function of their operands."""

from __future__ import annotations

import functools
import types
from collections.abc import Collection, Hashable, Mapping
from typing import Any

import jax
import numpy as np

from tojax.jaxprs import Jaxpr, JaxprEqn, Literal, Var, WrappedFun, constants, is_program, opened

DEEP = 30  # closures in closures; what lies deeper is the same where it is one object


class Kinds:
    """Numbers for equations; those of one number are the same function: primitive, parameters,
    rules of differentiation, types of operands and results. Values of literals do not count.

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
        given = tuple((isinstance(v, Literal), v.aval) for v in eqn.invars)
        alone = id(eqn) if eqn.effects else None
        key = (alone, self._head(eqn), given, tuple(v.aval for v in eqn.outvars))
        return self.numbers.setdefault(key, len(self.numbers))

    def apart(self, eqn: JaxprEqn, marked: Collection[Var]) -> int:
        """The number of an equation whose operands count as others where they are marked."""
        places = tuple(i for i, v in enumerate(eqn.invars) if isinstance(v, Var) and v in marked)
        return self.numbers.setdefault((self(eqn), places), len(self.numbers))

    def _head(self, eqn: JaxprEqn) -> Hashable:
        if id(eqn.params) not in self.forms:  # of equations that were inlined many times, one dict
            params = tuple((k, self.form(v)) for k, v in sorted(eqn.params.items()))
            number = self.numbers.setdefault(("params", params), len(self.numbers))
            self.forms[id(eqn.params)] = number, eqn.params
        return eqn.primitive, eqn.ctx, self.forms[id(eqn.params)][0]

    def form(self, value: Any, deep: int = 0) -> Hashable:
        """Something hashable that is equal for values that mean the same."""
        if is_program(value):
            if id(value) not in self.forms:
                made = self._program(value)
                number = self.numbers.setdefault(("jaxpr", made), len(self.numbers))
                self.forms[id(value)] = ("jaxpr", number), value
            return self.forms[id(value)][0]
        inside = functools.partial(self.form, deep=deep + 1)
        if isinstance(value, (tuple, list)):
            return type(value), tuple(map(inside, value))
        if isinstance(value, Mapping):
            return type(value), tuple((k, inside(v)) for k, v in value.items())
        if isinstance(value, (np.ndarray, np.generic)):
            return value.dtype, value.shape, value.tobytes()
        if isinstance(value, (float, complex)):
            return type(value), repr(value)  # NaN is itself, and 0.0 is not -0.0
        if deep < DEEP and (parts := _parts(value)) is not None:
            return type(value), inside(parts)
        return _itself(value)

    def _program(self, program: Any) -> Hashable:
        jaxpr = opened(program)
        equations = self._open(jaxpr) if jaxpr is program else self.form(jaxpr)
        return equations, tuple(map(self._constant, constants(program)))

    def _constant(self, array: Any) -> Hashable:
        small = isinstance(array, jax.Array) and array.size <= 1024
        known = small and not isinstance(array, jax.core.Tracer)
        if known and not jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
            array = np.asarray(array)
        return self.form(array) if isinstance(array, np.ndarray) else id(array)

    def _open(self, jaxpr: Jaxpr) -> Hashable:
        """Equations with numbers for variables, in the order in which they appear."""
        numbers: dict[Any, int] = {}
        number = lambda v: (numbers.setdefault(v, len(numbers)), v.aval)

        def read(v: Any) -> Hashable:
            return (self.form(np.asarray(v.val)), v.aval) if isinstance(v, Literal) else number(v)

        heads = tuple(map(number, (*jaxpr.constvars, *jaxpr.invars)))
        body = tuple(
            (self._head(e), tuple(map(read, e.invars)), tuple(map(number, e.outvars)))
            for e in jaxpr.eqns
        )
        alone = id(jaxpr) if jaxpr.effects else None
        return alone, heads, body, tuple(map(read, jaxpr.outvars))


def _parts(value: Any) -> Any:
    """What a function is made of, None for other things: functions made twice by the same line
    are the same if they close over the same.
    """
    if isinstance(value, functools.partial):
        return value.func, value.args, value.keywords
    if isinstance(value, types.MethodType):
        return value.__func__, value.__self__
    if isinstance(value, types.FunctionType):
        cells = tuple(map(_inside, value.__closure__ or ()))
        home = id(value.__globals__)  # equal code may stand in several modules
        return value.__code__, home, value.__defaults__, value.__kwdefaults__, cells
    if isinstance(value, slice):
        return value.start, value.stop, value.step
    if type(value).__name__ == "Unhashable":  # JAX's box around a static argument
        return value.val
    if isinstance(value, WrappedFun):
        return value.f, value.transforms, value.params, value.in_type
    return None


def _inside(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return cell


def _itself(value: Any) -> Hashable:
    kind: Any = type(value)
    if kind is object or (kind is not WrappedFun and kind.__module__ == WrappedFun.__module__):
        return kind  # marks, and places where tracing leaves the structure of a result
    try:
        hash(value)
    except TypeError:
        return id(value)
    return type(value), value
