import jax
import numpy as np
import optax
import pytest
import torch
from jax.sharding import NamedSharding, PartitionSpec

import anyjax
from anyjax.train import TrainState, make_step
from tests.train.nets import mlp, mse, rows, stateful

pytestmark = pytest.mark.sample(every=2)


def test_it_is_a_pytree_of_arrays_alone():
    model, state = stateful(mlp(torch.nn.BatchNorm1d(8)), optax.adam(1e-3))
    assert all(isinstance(x, jax.Array) for x in jax.tree.leaves(state))
    assert jax.jit(lambda s: s)(state).params.keys() == model.params.keys()
    assert jax.device_put(state, jax.devices()[1]).step.device == jax.devices()[1]


def test_donation_leaves_the_model_and_the_key_alone():
    """Also of an optimizer that keeps the params it is given."""
    key, tx = jax.random.key(3), optax.lookahead(optax.sgd(0.1), 5, 0.5)
    model = anyjax.from_torch(mlp())
    fast = optax.LookaheadParams.init_synced(model.params)
    assert fast.fast is model.params
    tx = optax.chain(optax.trace(0.9), optax.sgd(0.1), optax.ema(0.9))
    state = TrainState.create(model, tx, rng=key)
    step = make_step(mse, tx, ema=0.9)
    for _ in range(2):
        state, _ = step(state, rows())
    assert model(rows()[0]).shape == (8, 2)
    jax.random.normal(key)


def test_on_a_mesh_nothing_is_left_on_one_device():
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    model = anyjax.from_torch(mlp(torch.nn.BatchNorm1d(8)))
    place = lambda x: jax.device_put(x, NamedSharding(mesh, PartitionSpec()))
    state = TrainState.create(jax.tree.map(place, model), optax.adam(1e-3))
    assert {len(x.sharding.device_set) for x in jax.tree.leaves(state)} == {8}


def test_orbax_takes_it_as_it_is(tmp_path):
    ocp = pytest.importorskip("orbax.checkpoint")
    _, state = stateful(mlp(torch.nn.BatchNorm1d(8)), optax.adamw(1e-3))
    state, _ = make_step(mse, optax.adamw(1e-3))(state, rows())
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "state", state)
        checkpointer.wait_until_finished()
        back = checkpointer.restore(tmp_path / "state", jax.eval_shape(lambda: state))
    assert jax.tree.structure(back) == jax.tree.structure(state)
    for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(state)):
        assert (a == b).all()


def test_its_text_is_one_screen():
    """Whatever the optimizer keeps; also where no value can be read."""
    schedule = optax.inject_hyperparams(optax.adam)(1e-3)
    for tx in (optax.adamw(1e-3), optax.chain(optax.clip(1.0), schedule), optax.contrib.muon(0.1)):
        layers = (torch.nn.Linear(4, 4) for _ in range(19))
        model = anyjax.from_torch(torch.nn.Sequential(*layers, torch.nn.Linear(4, 2)))
        state = TrainState.create(model, tx)
        lines = repr(state).splitlines()
        assert lines[0] == "TrainState(step 0, Sequential from torch, train mode)"
        assert len(lines) <= 25 and max(map(len, lines)) <= 100
        assert "opt_state" in repr(state) and "... and 12 more" in repr(state)
    jax.jit(lambda state: lines.append(repr(state)))(state)
    shapes = jax.eval_shape(lambda: state)
    shardings = jax.tree.map(lambda x: x.sharding, state)
    step = make_step(mse, tx, ema=0.9)
    step(state, rows())
    assert state.step.is_deleted()
    for text in (lines[-1], repr(state), repr(shardings), repr(shapes)):
        assert text.startswith("TrainState(step ?, Sequential")


def test_averaged_is_the_model_without_an_average():
    _, state = stateful(mlp(), optax.sgd(0.1))
    assert state.averaged is state.model
    other = state.replace(ema={k: v * 0 for k, v in state.params.items()})
    np.testing.assert_array_equal(other.averaged(rows()[0]), 0)


@pytest.mark.parametrize("name", ["save_pretrained", "save", "generate", "apply", "eval"])
def test_what_its_model_has(name):
    _, state = stateful(mlp(), optax.sgd(0.1))
    with pytest.raises(AttributeError, match=rf"its model has: state\.model\.{name}$"):
        getattr(state, name)


@pytest.mark.parametrize("name", ["nothing", "_private", "__array__"])
def test_what_nobody_has(name):
    _, state = stateful(mlp(), optax.sgd(0.1))
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'$"):
        getattr(state, name)
    assert not hasattr(state, name)
