"""``while``, ``if`` and ``case``."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from anyjax.stablehlo.control_flow.loops import while_loop
from anyjax.stablehlo.core.schema import lowers
from anyjax.stablehlo.core.static_values import Known, as_jax, is_known


@lowers("stablehlo.while")
def while_(result, operand: Known, cond, body):
    """Values that the body returns unchanged are not carried: known ones stay known in it."""
    pairs = zip(body.region.inputs, body.region.outputs)
    moving = [i for i, (number, returned) in enumerate(pairs) if number != returned]

    def filled(carry):
        values = list(operand)
        for i, value in zip(moving, carry):
            values[i] = value
        return values

    def step(*carry):
        out = body(*filled(carry))
        return [as_jax(out[i]) for i in moving]

    test = lambda *carry: as_jax(cond(*filled(carry))[0])
    return filled(while_loop(test, step, [operand[i] for i in moving]))


@lowers("stablehlo.if")
def if_(result, pred: Known, true_branch, false_branch):
    if is_known(pred):
        return true_branch() if pred else false_branch()
    return lax.cond(pred, _arrays(true_branch), _arrays(false_branch))


@lowers("stablehlo.case")
def case(result, index: Known, branches, /):
    """Chooses the last branch for an index without one."""
    last = len(branches) - 1
    if is_known(index):
        return branches[int(index) if 0 <= index <= last else last]()
    index = jnp.where((index < 0) | (index > last), last, index)
    return lax.switch(index, [_arrays(branch) for branch in branches])


def _arrays(branch):
    return lambda: [jnp.asarray(x) for x in branch()]
