"""Products of few rows in groups: the same numbers as lax.ragged_dot, and no copies on targets."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from anyjax.numerics.grouped_product import LEAST, by_all, by_group, by_own, by_spread
from tests.tolerance import assert_close


def operands(rows=5, features=3, results=4, groups=6):
    rng = np.random.default_rng(0)
    lhs, rhs = rng.normal(size=(rows, features)), rng.normal(size=(groups, features, results))
    return jnp.asarray(lhs, "float32"), jnp.asarray(rhs, "float32")


SIZES = {"some empty": [2, 0, 1, 0, 0, 2], "not all rows": [0, 0, 3, 0, 1, 0], "none": [0] * 6}


@pytest.mark.parametrize("run", [by_all, by_spread, by_own])
@pytest.mark.parametrize("sizes", SIZES)
def test_values_and_gradients(run, sizes):
    lhs, rhs = operands()
    sizes = jnp.array(SIZES[sizes], "int32")
    assert_close(run(lhs, rhs, sizes), lax.ragged_dot(lhs, rhs, sizes))
    of = lambda f: jax.grad(lambda *x: (f(*x, sizes) ** 2).sum(), (0, 1))(lhs, rhs)
    for a, b in zip(of(run), of(lax.ragged_dot), strict=True):
        assert_close(a, b)


@pytest.mark.parametrize("run", [by_all, by_spread, by_own])
def test_weights_of_other_groups_are_not_in_a_batch(run):
    lhs, rhs = operands()
    sizes = jnp.array([[2, 0, 1, 0, 0, 2], [0, 5, 0, 0, 0, 0]], "int32")
    many = jax.vmap(lambda x, s: run(x, rhs, s))(jnp.stack([lhs, -lhs]), sizes)
    assert_close(many[1], -lax.ragged_dot(lhs, rhs, sizes[1]))
    assert run(lhs, rhs, sizes[0], "float16").dtype == "float16"


# Products of the program, by platform: None is XLA's own kernel.
FORMS = {
    "one row, one matrix": (8, {"tpu": 8, "cuda": 8, "cpu": 1}),
    "all matrices": (256, {"tpu": 1, "cuda": 1, "cpu": 1}),
    "many rows": (2048, {"tpu": None, "cuda": None, "cpu": 1}),
}


@pytest.mark.parametrize("case", FORMS)
def test_what_each_platform_computes(case):
    rows, forms = FORMS[case]
    lhs, rhs = (x.astype("bfloat16") for x in operands(rows, 128, 96, groups=64))
    assert rhs.nbytes > LEAST
    run = jax.jit(lambda *x: by_group(lax.ragged_dot, *x))
    traced = run.trace(lhs, rhs, jnp.zeros(64, "int32"))
    for platform, products in forms.items():
        text = traced.lower(lowering_platforms=(platform,)).as_text()
        assert ("chlo.ragged_dot" in text) == (products is None)
        assert text.count("stablehlo.dot_general") == (products or 0)


def test_small_matrices_are_left_to_xla():
    lhs, rhs = operands()
    jaxpr = jax.make_jaxpr(lambda *x: by_group(lax.ragged_dot, *x))(lhs, rhs, jnp.zeros(6, "int32"))
    assert "cond" not in str(jaxpr)
