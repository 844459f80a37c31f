"""Conditions that torch raises without: NaN in a program, an error from ``model(...)``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers.utils import torch_compilable_check

import anyjax
from anyjax.errors import ForwardFailed, UncheckedValues

pytestmark = pytest.mark.sample(every=4)

GOOD, BAD = np.array([1.0, 2.0], np.float32), np.array([1.0, -2.0], np.float32)


def by_transformers(x):
    found = (x > 0).sum()
    torch_compilable_check(found == x.numel(), f"{found} are positive", error_type=KeyError)
    return {"twice": x * 2, "place": x.argmax(), "name": "x"}


def by_torch(x):
    torch._check_tensor_all(x > 0, lambda: f"{(x > 0).sum()} are positive")
    return {"twice": x * 2, "place": x.argmax(), "name": "x"}


def soon(x):
    torch._assert_async((x > 0).all(), "1 are positive")
    return {"twice": x * 2, "place": x.argmax(), "name": "x"}


EVERY = pytest.mark.parametrize("function", [by_transformers, by_torch, soon])


@EVERY
def test_values_decide_outside_jit(function):
    model = anyjax.from_torch(function)
    for call in (model, lambda x: model.apply({}, x)):
        np.testing.assert_array_equal(call(GOOD)["twice"], 2 * GOOD)
        with pytest.raises(Exception, match="1 are positive"):
            call(BAD)
    assert model(GOOD)["name"] == "x"


@EVERY
def test_a_program_gives_no_numbers(function):
    model = anyjax.from_torch(function)
    program = jax.jit(lambda x: {k: v for k, v in model.apply({}, x).items() if k != "name"})
    np.testing.assert_array_equal(program(GOOD)["twice"], 2 * GOOD)
    assert jnp.isnan(program(BAD)["twice"]).all()
    assert program(BAD)["place"] == 0
    gradient = jax.jit(jax.grad(lambda x: model.apply({}, x)["twice"].sum()))
    np.testing.assert_array_equal(gradient(GOOD), [2, 2])
    assert jnp.isnan(gradient(BAD)).all()


def test_each_row_has_its_own():
    model = anyjax.from_torch(by_transformers)
    rows = jax.vmap(lambda x: model.apply({}, x)["twice"])(np.stack([GOOD, BAD, GOOD]))
    np.testing.assert_array_equal(jnp.isnan(rows).all(1), [False, True, False])


def test_the_class_of_the_error_is_the_model_s():
    with pytest.raises(KeyError, match="1 are positive"):
        anyjax.from_torch(by_transformers)(BAD)


def test_model_inside_a_program():
    model = anyjax.from_torch(by_transformers)
    assert jnp.isnan(jax.jit(lambda x: model(x)["twice"])(BAD)).all()


def test_on_one_way_of_two():
    def sometimes(x):
        if x[0] > 0:
            torch_compilable_check(x[1] > 0, "not positive")
            return x * 2
        return x

    model = anyjax.from_torch(sometimes)
    program = jax.jit(lambda x: model.apply({}, x))
    assert jnp.isnan(program(BAD)).all()
    np.testing.assert_array_equal(program(-BAD), -BAD)
    np.testing.assert_array_equal(program(GOOD), 2 * GOOD)


def test_code_that_jax_traces_on_its_own_is_not_checked():
    def repeated(x):
        body = lambda carry, row: (carry + by_transformers(row)["twice"], row * 1)
        carry, _ = torch._higher_order_ops.scan(body, torch.zeros(2), x)
        return torch.utils.checkpoint.checkpoint(
            lambda x: by_transformers(x)["twice"], carry, use_reentrant=False
        )

    model = anyjax.from_torch(repeated)
    rows = np.stack([GOOD, GOOD])
    with pytest.warns(UncheckedValues, match="not in the compiled program"):
        np.testing.assert_array_equal(jax.jit(lambda x: model.apply({}, x))(rows), 8 * GOOD)


def test_what_is_known_is_not_asked_for():
    def known(x):
        torch._assert_async(torch.ones(2).bool().all(), "no")
        torch._check_tensor_all(torch.ones(2).bool(), lambda: "no")
        return x * 2

    model = anyjax.from_torch(known)
    assert "nan" not in str(jax.make_jaxpr(lambda x: model.apply({}, x))(GOOD))
    np.testing.assert_array_equal(model(GOOD), 2 * GOOD)


def test_saved_programs_keep_them(tmp_path):
    anyjax.from_torch(by_torch).save(tmp_path / "model", GOOD)
    loaded = anyjax.load(tmp_path / "model")
    with pytest.raises(ForwardFailed, match="a check does not hold"):
        loaded(BAD)
    assert jnp.isnan(jax.jit(lambda x: loaded.apply({}, x)["twice"])(BAD)).all()
