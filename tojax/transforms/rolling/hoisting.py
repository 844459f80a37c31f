"""A jaxpr's equations in an order in which layers stand out: what all of them share comes first,
once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from typing import Any

import jax.numpy as jnp
import numpy as np

from tojax.jaxprs import Jaxpr, JaxprEqn, Literal, Var
from tojax.transforms.rolling.same import Kinds

SMALL = 1024  # elements: what is drawn for a layer is drawn in it, keys may be made before


def straight(
    jaxpr: Jaxpr, weights: Set[Var], keys: Set[Var], kinds: Kinds
) -> tuple[list[JaxprEqn], dict[Var, Var]]:
    """(The equations that are needed, in another order that gives the same results; for variables
    of equations that were left out because an earlier one computes the same, that one's.)

    Masks, positions and the like depend on no weight and no float: the equations that make them
    come first, each once. A layer that was the first to ask for them is then like any other. What
    is made of weights alone is made where it is used, such as a matrix of its packed numbers; first
    as well, where several equations use it.

    Args:
      weights: inputs that are params or state.
      keys: inputs that random numbers are drawn from.

    Example:
      >>> import jax
      >>> f = lambda w, i: (w * w * (i == 0), w + (i == 0), i - 1)[:2]
      >>> jaxpr = jax.make_jaxpr(f)(1.0, 2).jaxpr
      >>> [e.primitive.name for e in straight(jaxpr, {jaxpr.invars[0]}, set(), Kinds())[0]][:2]
      ['eq', 'convert_element_type']
    """
    order, needed = _Order(kinds), _needed(jaxpr)
    uses = Counter(v for eqn in needed for v in {*_given(eqn)})
    uses.update(v for v in jaxpr.outvars if isinstance(v, Var))
    moving, drawn = {*jaxpr.invars} - weights, {*keys}
    floats = {v for v in moving if jnp.issubdtype(_type(v).dtype, jnp.inexact)}
    weighty = {*weights, *floats}  # floats go through layers themselves
    for eqn in needed:
        given = _given(eqn)
        stays = bool(eqn.effects)
        if any(v in drawn for v in given):
            drawn.update(eqn.outvars)
            stays |= any(_type(v).size > SMALL for v in eqn.outvars)
        of_call = stays or any(v in moving for v in given)
        of_weights = stays or any(v in weighty for v in given)
        moving.update(eqn.outvars if of_call else ())
        weighty.update(eqn.outvars if of_weights else ())
        if of_call and of_weights:
            order.emit(eqn, order.rest)
        elif of_weights and max(uses[v] for v in eqn.outvars) == 1:
            order.late |= dict.fromkeys(eqn.outvars, eqn)
        else:
            order.once(eqn)
    for v in jaxpr.outvars:
        if isinstance(v, Var):
            order.bring(v, order.rest)
    return [*order.first, *order.rest], order.renamed


class _Order:
    """Equations as they are put in order.

    Attributes:
      first, rest: what is in order already.
      late: what waits for the equation that uses it, by result.
      renamed: results of equations that were left out.
    """

    def __init__(self, kinds: Kinds):
        self.kinds = kinds
        self.first: list[JaxprEqn] = []
        self.rest: list[JaxprEqn] = []
        self.late: dict[Var, JaxprEqn] = {}
        self.renamed: dict[Var, Var] = {}
        self.known: dict[Any, JaxprEqn] = {}

    def bring(self, v: Var, place: list[JaxprEqn]) -> None:
        """What makes a variable comes here, if it waits, after what that waits for."""
        wanted = [v]
        while wanted:  # no recursion: there may be thousands
            eqn = self.late.get(wanted[-1])
            waits = next((x for x in _given(eqn) if x in self.late), None) if eqn else None
            if waits is not None:
                wanted.append(waits)
                continue
            wanted.pop()
            if eqn is not None:
                for out in eqn.outvars:
                    self.late.pop(out, None)
                place.append(_with(eqn, self.renamed))

    def emit(self, eqn: JaxprEqn, place: list[JaxprEqn]) -> None:
        """An equation comes here, after what it waits for."""
        for v in _given(eqn):
            self.bring(v, place)
        place.append(_with(eqn, self.renamed))

    def once(self, eqn: JaxprEqn) -> None:
        """An equation comes first, unless another one there computes the same."""
        self.emit(eqn, self.first)
        eqn = self.first[-1]
        same = self.known.setdefault((self.kinds(eqn), *map(_operand, eqn.invars)), eqn)
        if same is not eqn:
            self.first.pop()
            self.renamed |= dict(zip(eqn.outvars, same.outvars))


def _type(v: Var) -> Any:
    return v.aval


def _given(eqn: JaxprEqn) -> list[Var]:
    return [v for v in eqn.invars if isinstance(v, Var)]


def _operand(v: Any) -> Any:
    return ("literal", np.asarray(v.val).tobytes()) if isinstance(v, Literal) else v


def _with(eqn: JaxprEqn, renamed: dict[Var, Var]) -> JaxprEqn:
    changed = any(isinstance(v, Var) and v in renamed for v in eqn.invars)
    return eqn.replace(invars=[now(v, renamed) for v in eqn.invars]) if changed else eqn


def now(v: Any, renamed: dict[Var, Var]) -> Any:
    """A variable, or the one that has its value."""
    return v if isinstance(v, Literal) else renamed.get(v, v)


def _needed(jaxpr: Jaxpr) -> list[JaxprEqn]:
    wanted = {v for v in jaxpr.outvars if isinstance(v, Var)}
    found = []
    for eqn in reversed(jaxpr.eqns):
        if eqn.effects or any(v in wanted for v in eqn.outvars):
            wanted.update(v for v in eqn.invars if isinstance(v, Var))
            found.append(eqn)
    return found[::-1]
