"""Adapters begin as nothing, train alone, and are merged."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from torch import nn

import anyjax
from anyjax.errors import WrongArguments, WrongValue
from anyjax.train import TrainState, fit, freeze, lora, make_step, merge
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=2)

X = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
Y = np.tanh(X[:, :2])


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))


def trained(model, steps=40):
    tx = optax.adam(0.03)
    step = make_step(lambda model, batch: ((model(batch[0]) - batch[1]) ** 2).mean(), tx)
    return fit(TrainState.create(model, tx), step, [(X, Y)] * steps, progress=False).model


@pytest.mark.parametrize("dora", [False, True])
def test_trains_the_adapters_alone(dora):
    net = network()
    model = anyjax.from_torch(net)
    small = lora(model, 2, r"weight", alpha=4, dora=dora, train=r"2\.bias")
    assert_close(small(X), model(X), reduction=8)
    after = trained(small)
    loss = lambda m: float(((m(X) - Y) ** 2).mean())
    assert loss(after) < loss(model) / 4
    for name, array in model.params.items():
        if name != "2.bias":
            assert jnp.array_equal(after.state[name], array)
    whole = merge(after)
    assert whole.params.keys() == model.params.keys()
    assert_close(whole(X), after(X), reduction=8)
    assert_close(after.to_torch()(torch.from_numpy(X)).detach(), after(X), reduction=8)
    assert not jnp.array_equal(net[0].weight.detach().numpy(), model.params["0.weight"])


def test_any_function_of_params():
    """Under jit, grad, vmap, in another mode, and with what the forward pass writes."""
    model = anyjax.from_torch(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5)))
    small = lora(model, 2, "0.weight").train()
    key = jax.random.key(0)
    _, state = small.apply(small.params, X, rng=key, mutable=True)
    assert {"1.running_mean", "1.running_var"} < state.keys()
    loss = lambda p: small.apply(p, X, rng=key, mutable=True)[0][:, 0] @ X[:, 0]
    slopes = jax.jit(jax.grad(loss))(small.params)
    assert slopes.keys() == {"0.lora_A", "0.lora_B"}
    assert float(jnp.abs(slopes["0.lora_B"]).max()) > 0
    stacked = jax.tree.map(lambda x: jnp.stack([x, x]), small.params)
    both = jax.vmap(lambda p: small.eval().apply(p, X))(stacked)
    assert_close(both[1], small.eval()(X), reduction=8)


def test_rank_and_values():
    """W + alpha / rank * B @ A, written out."""
    model = anyjax.from_torch(nn.Linear(8, 4, bias=False))
    small = lora(model, 2, "weight", alpha=6)
    name_a, name_b = sorted(small.params)
    params = {**small.params, name_b: jnp.ones((4, 2))}
    matrix = model.params["weight"] + 3 * jnp.ones((4, 2)) @ params[name_a]
    assert_close(small.apply(params, X), X @ matrix.T, reduction=16)


def test_frozen_params():
    model = anyjax.from_torch(network())
    head = freeze(model, r"^0")
    assert sorted(head.params) == ["2.bias", "2.weight"]
    after = trained(head, 5)
    assert jnp.array_equal(after.state["0.weight"], model.params["0.weight"])
    assert not jnp.array_equal(after.params["2.weight"], model.params["2.weight"])
    assert merge(after).params.keys() == model.params.keys()
    further = freeze(lora(model, 2, "0.weight", train="2"), r"2\.bias")
    assert sorted(further.params) == ["0.lora_A", "0.lora_B", "2.weight"]
    assert_close(further(X), model(X), reduction=8)


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda m: lora(m, 2, "q_proj"), "matches none"),
        (lambda m: lora(m, 2, "bias"), "no matrix"),
        (lambda m: lora(m, 0, "weight"), "rank=0"),
        (lambda m: freeze(m, "nothing"), "matches none"),
    ],
)
def test_bad_input(make, says):
    with pytest.raises(WrongValue, match=says):
        make(anyjax.from_torch(network()))


def test_adapters_are_no_frozen_weights():
    with pytest.raises(WrongArguments, match="freeze of adapters"):
        freeze(lora(anyjax.from_torch(network()), 2, "0.weight"), "lora_A")
