"""JAX's programs as values, with the installed JAX."""

import jax
import jax.numpy as jnp
import pytest

from anyjax import jaxprs
from anyjax.errors import UntestedVersion


def custom_vjp():
    f = jax.custom_vjp(lambda x: jnp.sin(x))
    f.defvjp(lambda x: (f(x), x), lambda x, g: (g * jnp.cos(x),))
    return f


def custom_jvp():
    f = jax.custom_jvp(lambda x: jnp.sin(x))
    f.defjvp(lambda x, t: (f(*x), jnp.cos(*x) * t[0]))
    return f


CALLERS = {
    "jit": jax.jit(jnp.sin),
    "checkpoint": jax.checkpoint(jnp.sin),
    "custom_jvp": custom_jvp(),
    "custom_vjp": custom_vjp(),
    "nested": jax.jit(jax.checkpoint(custom_jvp())),
}


@pytest.mark.parametrize("name", CALLERS)
def test_what_an_equation_calls(name):
    """A name that JAX changed would make it an operator without a rule."""
    (eqn,) = jax.make_jaxpr(CALLERS[name])(1.0).eqns
    while (program := jaxprs.called(eqn)) is not None:
        assert jaxprs.is_program(program)
        assert jaxprs.constants(program) == () or not len(jaxprs.constants(program))
        (eqn,) = jaxprs.opened(program).eqns
    assert eqn.primitive.name == "sin"


def test_the_compiler_is_asked_for_its_options():
    assert jaxprs.compiler_option("xla_disable_hlo_passes", "dce") == {
        "xla_disable_hlo_passes": "dce"
    }
    assert set(jaxprs.keeping_barriers()) == {"xla_disable_hlo_passes"}
    with pytest.warns(UntestedVersion, match="no option xla_no_such_option"):
        assert jaxprs.compiler_option("xla_no_such_option", "dce") == {}
