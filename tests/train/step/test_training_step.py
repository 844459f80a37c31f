import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import anyjax
from anyjax.errors import ManyCompilations, WrongBatch, WrongValue
from anyjax.train import TrainState, make_step
from tests.tolerance import assert_close
from tests.train.nets import mlp, mse, rows, stateful

pytestmark = pytest.mark.sample(every=2)

OPTIMIZERS = {
    "sgd": (lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), lambda: optax.sgd(0.1, 0.9), 1e-5),
    "adam": (lambda p: torch.optim.Adam(p, 1e-2), lambda: optax.adam(1e-2), 1e-3),
    "adamw": (
        lambda p: torch.optim.AdamW(p, 1e-2, weight_decay=0.1),
        lambda: optax.adamw(1e-2, weight_decay=0.1),
        1e-3,
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_loss_curves_are_those_of_torch(name):
    """50 steps from the same weights and batches, BatchNorm's statistics included."""
    theirs, ours, allowed = OPTIMIZERS[name]
    module = mlp(torch.nn.BatchNorm1d(8)).train()
    tx = ours()
    _, state = stateful(module, tx)
    step, optimizer = make_step(mse, tx), theirs(module.parameters())
    curves = [], []
    for i in range(50):
        x, y = rows(16, seed=i)
        state, metrics = step(state, (x, y))
        optimizer.zero_grad()
        loss = ((module(torch.from_numpy(x)) - torch.from_numpy(y)) ** 2).mean()
        loss.backward()
        optimizer.step()
        curves[0].append(float(metrics["loss"]))
        curves[1].append(loss.item())
    np.testing.assert_allclose(*curves, atol=allowed)
    assert curves[0][-1] < curves[0][0] / 2 and step.compilations == 1
    assert_close(state.state["1.running_var"], module[1].running_var, rtol=allowed)
    assert int(state.state["1.num_batches_tracked"]) == int(state.step) == 50


def test_dropout_draws_anew_in_each_step_and_call():
    def loss(model, x):
        one, two = model(x), model(x)
        return one.mean(), {"differ": jnp.any(one != two), "one": one}

    tx = optax.sgd(0.0)
    runs = []
    for _ in range(2):
        _, state = stateful(mlp(torch.nn.Dropout(0.5)), tx, rng=7)
        step = make_step(loss, tx)
        seen = []
        for _ in range(3):
            state, metrics = step(state, rows()[0])
            assert metrics["differ"]
            seen.append(np.asarray(metrics["one"]))
        runs.append(seen)
    np.testing.assert_array_equal(*runs)
    assert len({x.tobytes() for x in runs[0]}) == 3


@pytest.mark.parametrize("clip", [None, 0.05])
def test_accumulated_gradients_are_those_of_the_whole_batch(clip):
    results = []
    for parts in (1, 4):
        tx = optax.adam(1e-2)
        _, state = stateful(mlp(), tx)
        state, metrics = make_step(mse, tx, accumulate=parts, clip=clip)(state, rows())
        results.append((state.params, metrics))
    assert_close(*results, rtol=1e-5)


def test_accumulation_carries_statistics_and_draws_anew():
    _, state = stateful(mlp(torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5)), optax.sgd(0.1))
    state, metrics = make_step(mse, optax.sgd(0.1), accumulate=4)(state, rows())
    assert int(state.state["1.num_batches_tracked"]) == 4 and metrics["finite"]


def test_clipping_bounds_the_update():
    _, state = stateful(mlp(), optax.sgd(1.0))
    before = jax.tree.map(np.asarray, state.params)
    state, metrics = make_step(mse, optax.sgd(1.0), clip=1e-3)(state, rows())
    moved = optax.tree.norm(jax.tree.map(jnp.subtract, state.params, before))
    assert metrics["grad_norm"] > 1e-3 and abs(moved - 1e-3) < 1e-5


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_mixed_precision_computes_narrow_and_keeps_wide(dtype):
    seen = []

    def loss(model, batch):
        seen.append({str(x.dtype) for x in model.params.values()})
        out = model(batch[0])
        assert out.dtype == jnp.float32
        return jnp.mean((out - batch[1]) ** 2)

    tx = optax.adam(1e-2)
    _, state = stateful(mlp(torch.nn.BatchNorm1d(8)), tx)
    step, losses = make_step(loss, tx, compute_dtype=dtype), []
    for i in range(30):
        state, metrics = step(state, rows(32, seed=i))
        losses.append(float(metrics["loss"]))
    assert seen[0] == {dtype}
    floats = [x for x in jax.tree.leaves(state) if jnp.issubdtype(x.dtype, jnp.floating)]
    assert {str(x.dtype) for x in floats} == {"float32"}
    assert losses[-1] < losses[0] / 2 and step.compilations == 1


def test_a_scale_that_overflows_shrinks_and_nothing_else_changes():
    _, state = stateful(mlp(), optax.adam(1e-2))
    step = make_step(mse, optax.adam(1e-2), compute_dtype="float16", loss_scale=2.0**40)
    before = jax.tree.map(np.asarray, (state.params, state.opt_state))
    state, metrics = step(state, rows())
    assert not metrics["finite"] and metrics["loss_scale"] == 2.0**39
    assert_close((state.params, state.opt_state), before, rtol=0)
    while not metrics["finite"]:
        state, metrics = step(state, rows())
    assert metrics["loss_scale"] < 2.0**25 and np.isfinite(metrics["grad_norm"])


def test_a_loss_that_is_not_finite_changes_nothing():
    _, state = stateful(mlp(torch.nn.BatchNorm1d(8)), optax.adam(1e-2))
    before = jax.tree.map(np.asarray, (state.model.params, state.state, state.opt_state))
    x, y = rows()
    state, metrics = make_step(mse, optax.adam(1e-2))(state, (x * np.nan, y))
    assert not metrics["finite"] and int(state.step) == 1
    assert_close((state.params, state.state, state.opt_state), before, rtol=0)


def test_ema_follows_the_params():
    _, state = stateful(mlp(), optax.sgd(0.1))
    step = make_step(mse, optax.sgd(0.1), ema=0.9)
    want = jax.tree.map(np.asarray, state.params)
    for _ in range(3):
        state, _ = step(state, rows())
        want = jax.tree.map(lambda e, p: 0.9 * e + 0.1 * np.asarray(p), want, state.params)
    assert_close(state.ema, want, rtol=1e-6)
    assert state.averaged(rows()[0]).shape == (8, 2)


@pytest.mark.parametrize("axis_type", [AxisType.Auto, AxisType.Explicit], ids=str)
@pytest.mark.parametrize("parts", [1, 2])
def test_the_same_step_on_a_mesh(axis_type, parts):
    """Compiled once, the state stays where it is; a first layer that is cut needs an Auto mesh."""
    mesh = jax.make_mesh((4,), ("data",), axis_types=(axis_type,))
    tx = optax.adam(1e-2)
    model, state = stateful(mlp(), tx)
    step = make_step(mse, tx, accumulate=parts)
    want, _ = step(state, rows())
    cut = axis_type == AxisType.Auto
    over, everywhere = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("data",), ()))
    params = {
        k: jax.device_put(v, over if k[0] == "0" and cut else everywhere)
        for k, v in model.params.items()
    }
    with jax.set_mesh(mesh):
        state = TrainState.create(model.with_params(params), tx)
        places = jax.tree.map(lambda x: x.sharding, state)
        step = make_step(mse, tx, accumulate=parts)
        batch = jax.device_put(rows(), over)
        got, _ = step(state, batch)
        assert_close(got.params, want.params, rtol=1e-5)
        moved = jax.tree.map(lambda x, s: x.sharding.is_equivalent_to(s, x.ndim), got, places)
        assert all(jax.tree.leaves(moved))
        step(got, batch)
    assert step.compilations == 1


class Windowed(torch.nn.Module):
    """A buffer decides a shape, another one is written."""

    def __init__(self):
        super().__init__()
        self.register_buffer("width", torch.tensor([2, 3]))
        self.register_buffer("calls", torch.tensor(0))
        self.scale = torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        self.calls += 1
        return x[:, : self.width.tolist()[1]] * self.scale


def test_a_buffer_may_decide_shapes():
    _, state = stateful(Windowed(), optax.sgd(0.1))
    step = make_step(lambda model, x: model(x).mean(), optax.sgd(0.1))
    for _ in range(3):
        state, _ = step(state, rows()[0])
    assert int(state.state["calls"]) == 3 and step.compilations <= 3


class Remembers(torch.nn.Module):
    """What it keeps in an attribute joins the state."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)

    def forward(self, x):
        if getattr(self, "last", None) is not None:
            x = x + self.last.mean()
        self.last = x.detach()
        return self.linear(x)


def test_attributes_join_the_state():
    _, state = stateful(Remembers(), optax.sgd(0.1))
    step = make_step(mse, optax.sgd(0.1))
    for _ in range(3):
        state, metrics = step(state, rows())
    assert state.state and metrics["finite"]


def test_tensorflow_models_train_as_well():
    keras = pytest.importorskip("keras")
    layers = [keras.layers.Input((4,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(2)]
    model = anyjax.from_tensorflow(keras.Sequential(layers))
    tx = optax.adam(3e-2)
    state, step = TrainState.create(model, tx), make_step(mse, tx)
    losses = []
    for _ in range(20):
        state, metrics = step(state, rows())
        losses.append(float(metrics["loss"]))
    assert losses[-1] < losses[0] / 2


def test_a_loss_is_a_scalar():
    _, state = stateful(mlp(), optax.sgd(0.1))
    with pytest.raises(WrongValue, match=r"the loss is float32\[8, 2\]"):
        make_step(lambda model, batch: model(batch[0]), optax.sgd(0.1))(state, rows())


def test_batches_of_another_kind_are_refused():
    _, state = stateful(mlp(), optax.sgd(0.1))
    step = make_step(mse, optax.sgd(0.1), donate=False)
    x, y = rows()
    step(state, (x, y))
    step(state, (x[:4], y[:4]))  # another size
    with pytest.raises(WrongBatch, match=r"batch\[0\] is int32 of 2 dimensions, was float32"):
        step(state, (x.astype(np.int32), y))
    with pytest.raises(WrongBatch, match="the first was"):
        step(state, {"x": x, "y": y})


def test_many_compilations_are_noticed(monkeypatch):
    monkeypatch.setattr("anyjax.train.step.training_step.MANY", 3)
    _, state = stateful(mlp(), optax.sgd(0.1))
    step = make_step(mse, optax.sgd(0.1), donate=False)
    x, y = rows()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in (1, 2):
            step(state, (x[:size], y[:size]))
    with pytest.warns(ManyCompilations, match="compiled 3 times"):
        step(state, (x[:3], y[:3]))


@pytest.mark.parametrize("accumulate", [1, 2])
def test_weights_that_forward_writes(accumulate):
    """A step goes on from the clipped weights, as torch's optimizers do."""

    class Critic(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)
            torch.nn.init.constant_(self.layer.weight, 3.0)

        def forward(self, x):
            with torch.no_grad():
                self.layer.weight.clamp_(-0.1, 0.1)
            return self.layer(x)

    module, rows = Critic(), np.ones((4, 2), np.float32)
    optimizer = optax.sgd(0.5)
    loss = lambda model, batch: model(batch).mean()
    step = anyjax.train.make_step(loss, optimizer, accumulate=accumulate)
    state = anyjax.train.TrainState.create(anyjax.from_torch(module), optimizer)
    torch_optimizer = torch.optim.SGD(module.parameters(), 0.5)
    for _ in range(2):
        state, _ = step(state, rows)
        torch_optimizer.zero_grad()
        module(torch.from_numpy(rows)).mean().backward()
        torch_optimizer.step()
        assert_close(state.params["layer.weight"], module.layer.weight.detach().numpy())
    assert state.model.state == {}
