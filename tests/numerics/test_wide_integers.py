"""64-bit integers in 32 bits: what fits, and what a graph of another framework checks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anyjax.errors import UncheckedValues, Unsupported
from anyjax.numerics.conditions import enforced
from anyjax.numerics.wide_integers import Checks, fit

LARGE, SMALL = jnp.int32([2**30, 1]), jnp.int32([5, 1])


def test_what_wraps_is_off_by_more_than_rounding():
    near = jnp.float32(2**31)  # 2**31 - 1, rounded
    assert fit(near, jnp.int32(2**31 - 1)) and not fit(near, jnp.int32(-(2**31)))
    assert fit(jnp.float32(-(2.0**31)), None) and not fit(near, None)
    assert fit(jnp.float32(jnp.nan), jnp.int32(0)) and fit(jnp.float32(-jnp.inf), None)


CASES = {
    "Mul": (jnp.multiply, lambda x: [x, x]),
    "stablehlo.add": (jnp.add, lambda x: [x, x]),
    "Sum": (lambda x, axis: x.sum(axis), lambda x: [x.repeat(3), np.int32(0)]),
    "AddN": (lambda xs: xs[0] + xs[1], lambda x: [[x, x]]),
    "Cast": (lambda x: x.astype(jnp.int32), lambda x: [x * jnp.float32(4)]),
}


@pytest.mark.parametrize("name", CASES)
def test_operators_of_graphs(name):
    lowering, arguments = CASES[name]
    with pytest.raises(Unsupported, match=rf"{name} gives 64-bit integers beyond 2\*\*31"):
        Checks().note(name, lowering, arguments(LARGE), lowering(*arguments(LARGE)))
    Checks().note(name, lowering, arguments(SMALL), lowering(*arguments(SMALL)))

    @jax.jit
    def program(x):
        checks = Checks()
        checks.note(name, lowering, arguments(x), lowering(*arguments(x)))
        return enforced(jnp.ones(2), checks)

    assert program(SMALL)[1] and not program(LARGE)[1]
    assert np.isnan(program(LARGE)[0]).all() and np.isfinite(program(SMALL)[0]).all()


@pytest.mark.parametrize("name", ["Gather", "Add", "Less"])
def test_moves_and_steps_are_not_checked(name):
    @jax.jit
    def program(x):
        checks = Checks()
        checks.note(name, jnp.add, [x, np.int32(3)], x + 3)
        return len(checks)

    assert program(SMALL) == 0


def test_a_loop_keeps_its_conditions():
    def body(x):
        checks.note("Mul", jnp.multiply, [x, x], x * x)
        return x * x

    with jax.ensure_compile_time_eval():
        checks = Checks()
    with pytest.warns(UncheckedValues, match="Mul of 64-bit integers inside a loop or branch"):
        assert jax.lax.cond(True, body, body, SMALL).tolist() == [25, 1] and not checks
