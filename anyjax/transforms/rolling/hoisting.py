"""A jaxpr's equations in an order in which layers are alike: equations that all layers share come
first, once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from typing import Any

import jax.numpy as jnp
import numpy as np

from anyjax.jaxprs import Jaxpr, JaxprEqn, Literal, Var, needed, variables
from anyjax.transforms.rolling.equation_kinds import Kinds

SMALL = 1024  # elements: larger random arrays stay in their layer, keys may be made before


def hoist_shared(
    jaxpr: Jaxpr, weights: Set[Var], keys: Set[Var], kinds: Kinds
) -> tuple[list[JaxprEqn], dict[Var, Var]]:
    """Reorders equations without a change of results.

    Masks, positions and the like depend on no weight and no float: their equations come first, each
    once. Then the layer that was the first to use them is like any other. Equations of weights
    alone, such as the unpacking of a matrix, come right before their use; if several equations use
    the result, they come first as well.

    Args:
      weights: inputs that are params or state.
      keys: inputs that random numbers are drawn from.

    Returns:
      (the equations that are needed, and for each result of a duplicate equation the variable that
      has its value).

    Example:
      >>> import jax
      >>> f = lambda w, i: (w * w * (i == 0), w + (i == 0), i - 1)[:2]
      >>> jaxpr = jax.make_jaxpr(f)(1.0, 2).jaxpr
      >>> [e.primitive.name for e in hoist_shared(jaxpr, {jaxpr.invars[0]}, set(), Kinds())[0]][:2]
      ['eq', 'convert_element_type']
    """
    order, eqns = _Order(kinds), needed(jaxpr.eqns, jaxpr.outvars)
    uses = Counter(v for eqn in eqns for v in {*variables(eqn.invars)})
    uses.update(v for v in jaxpr.outvars if isinstance(v, Var))
    from_inputs, from_keys = {*jaxpr.invars} - weights, {*keys}
    floats = {v for v in from_inputs if jnp.issubdtype(_type(v).dtype, jnp.inexact)}
    from_weights = {*weights, *floats}  # floats pass through the layers, as weights do
    for eqn in eqns:
        operands = variables(eqn.invars)
        pinned = bool(eqn.effects)
        if any(v in from_keys for v in operands):
            from_keys.update(eqn.outvars)
            pinned |= any(_type(v).size > SMALL for v in eqn.outvars)
        of_inputs = pinned or any(v in from_inputs for v in operands)
        of_weights = pinned or any(v in from_weights for v in operands)
        from_inputs.update(eqn.outvars if of_inputs else ())
        from_weights.update(eqn.outvars if of_weights else ())
        if of_inputs and of_weights:
            order.emit(eqn, order.layers)
        elif of_weights and max(uses[v] for v in eqn.outvars) == 1:
            order.deferred |= dict.fromkeys(eqn.outvars, eqn)
        else:
            order.emit_shared(eqn)
    for v in jaxpr.outvars:
        if isinstance(v, Var):
            order.emit_deferred(v, order.layers)
    return [*order.shared, *order.layers], order.renamed


class _Order:
    """The new order of equations.

    Attributes:
      shared, layers: the equations in order.
      deferred: by result, equations that come right before their use.
      renamed: by result of a duplicate equation, the variable that has its value.
    """

    def __init__(self, kinds: Kinds):
        self.kinds = kinds
        self.shared: list[JaxprEqn] = []
        self.layers: list[JaxprEqn] = []
        self.deferred: dict[Var, JaxprEqn] = {}
        self.renamed: dict[Var, Var] = {}
        self.unique: dict[Any, JaxprEqn] = {}

    def emit_deferred(self, v: Var, eqns: list[JaxprEqn]) -> None:
        """Appends the equation of a variable, if it is deferred, after those that it needs."""
        stack = [v]
        while stack:  # no recursion: there may be thousands
            eqn = self.deferred.get(stack[-1])
            operands = variables(eqn.invars) if eqn else []
            operand = next((x for x in operands if x in self.deferred), None)
            if operand is not None:
                stack.append(operand)
                continue
            stack.pop()
            if eqn is not None:
                for out in eqn.outvars:
                    self.deferred.pop(out, None)
                eqns.append(_with(eqn, self.renamed))

    def emit(self, eqn: JaxprEqn, eqns: list[JaxprEqn]) -> None:
        """Appends an equation, after the deferred ones that it needs."""
        for v in variables(eqn.invars):
            self.emit_deferred(v, eqns)
        eqns.append(_with(eqn, self.renamed))

    def emit_shared(self, eqn: JaxprEqn) -> None:
        """Appends an equation to the shared ones, unless one of them computes the same."""
        self.emit(eqn, self.shared)
        eqn = self.shared[-1]
        same = self.unique.setdefault((self.kinds(eqn), *map(_operand, eqn.invars)), eqn)
        if same is not eqn:
            self.shared.pop()
            self.renamed |= dict(zip(eqn.outvars, same.outvars))


def _type(v: Var) -> Any:
    return v.aval


def _operand(v: Var | Literal) -> Any:
    return ("literal", np.asarray(v.val).tobytes()) if isinstance(v, Literal) else v


def _with(eqn: JaxprEqn, renamed: dict[Var, Var]) -> JaxprEqn:
    changed = any(isinstance(v, Var) and v in renamed for v in eqn.invars)
    return eqn.replace(invars=[resolve(v, renamed) for v in eqn.invars]) if changed else eqn


def resolve(v: Var | Literal, renamed: dict[Var, Var]) -> Any:
    """Returns the variable that has the value of this one."""
    return v if isinstance(v, Literal) else renamed.get(v, v)
