"""Fresh weights: deterministic, under every transformation, and what none makes."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import NoInitialiser
from anyjax.flax.wrap.initialise import fresh
from tests.flax.wrap.nets import net
from tests.tolerance import assert_close

KEY = jax.random.key(3)


class Scaled(torch.nn.Module):
    """A parameter of its own, which no initialiser covers."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.full((2,), 5.0))
        self.linear = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.linear(x) * self.scale


def test_the_model_and_torchs_generator_stay_as_they_are():
    before, state = {k: np.array(v) for k, v in net().params.items()}, torch.get_rng_state()
    fresh(net(), KEY)
    assert_close(net().params, before)
    assert torch.equal(state, torch.get_rng_state())


def test_statistics_begin_anew():
    trained = net().with_state({k: v + 3 for k, v in net().state.items()})
    _, state = fresh(trained, KEY)
    assert_close(state, net().state)


def test_transformations():
    params, state = fresh(net(), KEY)
    assert_close(jax.jit(lambda key: fresh(net(), key))(KEY), (params, state))
    each = jax.vmap(lambda key: fresh(net(), key)[0])(jnp.stack([KEY, jax.random.key(4)]))
    assert_close({k: v[0] for k, v in each.items()}, params)
    assert not np.array_equal(each["head.weight"][0], each["head.weight"][1])


def test_eval_shape_runs_no_initialiser(monkeypatch):
    from anyjax.flax.wrap import initialise

    monkeypatch.setattr(initialise, "_host", None)
    shapes, _ = jax.eval_shape(lambda key: fresh(net(), key), KEY)
    assert shapes["head.weight"].shape == (2, 4)


def test_what_no_initialiser_makes_is_kept_and_told_once():
    model = anyjax.from_torch(Scaled())
    with pytest.warns(NoInitialiser, match="no initialiser of Scaled makes scale:"):
        params, _ = fresh(model, KEY)
    assert params["scale"].tolist() == [5, 5]
    assert not np.array_equal(params["linear.weight"], model.params["linear.weight"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again, _ = jax.jit(lambda key: fresh(model, key))(KEY)
    assert_close(again, params)


def test_a_loaded_program_has_no_initialisers(tmp_path):
    source = torch.nn.Linear(2, 2).eval()
    anyjax.from_torch(source).save(tmp_path / "linear", np.ones((1, 2), np.float32))
    model = anyjax.load(tmp_path / "linear")
    with pytest.warns(NoInitialiser, match=r"makes weight, bias|makes bias, weight"):
        assert_close(fresh(model, KEY)[0], model.params)
