import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

import anyjax
from anyjax.errors import NoData, WrongBatch
from anyjax.train import evaluate
from tests.train.nets import mlp, mse, rows, stateful
from tests.train.step.test_training_step import Windowed


def test_means_are_over_rows_in_evaluation_mode():
    _, state = stateful(mlp(torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.9)), optax.sgd(0.1))
    x, y = rows(10)
    parts = [(x[:8], y[:8]), (x[8:], y[8:])]
    whole = np.mean((np.asarray(state.model.eval()(x)) - y) ** 2)
    np.testing.assert_allclose(evaluate(state, parts, mse)["loss"], whole, rtol=1e-5)


def test_it_takes_the_average_and_more_metrics():
    _, state = stateful(mlp(), optax.sgd(0.1))
    state = state.replace(ema={k: jnp.zeros_like(v) for k, v in state.params.items()})
    largest = lambda model, batch: (mse(model, batch), {"largest": jnp.abs(model(batch[0])).max()})
    found = evaluate(state, [rows()], largest)
    assert found["largest"] == 0 and found["loss"] > 0


def test_it_is_compiled_once():
    calls = []
    model = anyjax.from_torch(mlp())

    def metric(model, batch):
        calls.append(1)
        return mse(model, batch)

    for _ in range(3):
        evaluate(model, [rows()], metric)
    assert len(calls) == 1


def test_a_buffer_may_decide_shapes():
    model = anyjax.from_torch(Windowed())
    assert evaluate(model, [rows()[0]], lambda model, x: {"width": model(x).shape[1]}) == {
        "width": 3.0
    }


def test_no_batch_is_an_error():
    with pytest.raises(NoData, match="no batch to evaluate"):
        evaluate(anyjax.from_torch(mlp()), [], mse)


def test_rows_are_what_most_arrays_say():
    mean = lambda model, batch: model(batch["x"]).mean()
    model = anyjax.from_torch(torch.nn.Identity())
    batch = lambda rows, value: {
        "x": np.full((rows, 2), value, np.float32),
        "y": np.zeros(rows),
        "pictures": np.zeros((3, 2)),
    }
    assert evaluate(model, [batch(4, 0), batch(1, 1)], mean) == {"loss": pytest.approx(0.2)}
    two = [{k: x for k, x in batch(*rows).items() if k != "y"} for rows in ((4, 0), (1, 1))]
    with pytest.raises(WrongBatch, match="rows by one array"):
        evaluate(model, two, mean)
    same = [{k: x for k, x in batch(*rows).items() if k != "y"} for rows in ((4, 0), (4, 1))]
    assert evaluate(model, same, mean) == {"loss": 0.5}


def test_batches_of_no_rows_count_for_nothing():
    model, mean = anyjax.from_torch(torch.nn.Identity()), lambda model, x: model(x).mean()
    full, empty = np.ones((4, 1), np.float32), np.ones((0, 1), np.float32)
    assert evaluate(model, [full, empty], mean) == {"loss": 1.0}
    with pytest.raises(NoData):
        evaluate(model, [empty], mean)
