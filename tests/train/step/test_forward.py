import jax
import jax.numpy as jnp
import numpy as np
import torch

import anyjax
from anyjax.train.step.forward import StatefulModel
from tests.train.nets import mlp, rows


def test_state_goes_from_call_to_call():
    model = anyjax.from_torch(torch.nn.BatchNorm1d(4)).train()
    running = StatefulModel(model)
    for _ in range(3):
        running(rows()[0])
    assert int(running.state["num_batches_tracked"]) == 3
    assert int(model.state["num_batches_tracked"]) == 0


def test_a_key_of_ones_own_is_taken():
    model = anyjax.from_torch(mlp(torch.nn.Dropout(0.5))).train()
    running, key = StatefulModel(model, jax.random.key(0)), jax.random.key(5)
    x = rows()[0]
    one, two = running(x, rng=key), running(x, rng=key)
    np.testing.assert_array_equal(one, two)
    assert (running(x) != running(x)).any()


def test_apply_takes_other_params_and_leaves_the_state():
    model = anyjax.from_torch(mlp())
    running = StatefulModel(model)
    zeros = jax.tree.map(jnp.zeros_like, model.params)
    assert not running.apply(zeros, rows()[0]).any()
