import jax
import numpy as np
import optax
import pytest
import torch

import anyjax
from anyjax.errors import Unsupported, WrongValue
from anyjax.train import TrainState, make_step, model_loss
from anyjax.train.step.gradients import Gradients
from tests.tolerance import assert_close
from tests.train.nets import mse, rows, stateful

pytestmark = pytest.mark.sample(every=2)


class Block(torch.nn.Module):
    """A wide layer with all that may go wrong: a draw, statistics, a buffer that is written."""

    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Linear(4, 128),
            torch.nn.BatchNorm1d(128),
            torch.nn.Tanh(),
            torch.nn.Dropout(0.5),
        )
        self.out = torch.nn.Linear(128, 4)

    def forward(self, x):
        return x + self.out(self.body(x))


def stack(count=3):
    torch.manual_seed(0)
    return torch.nn.Sequential(*[Block() for _ in range(count)], torch.nn.Linear(4, 2))


@pytest.mark.parametrize("which", [True, r"[01]"])
def test_gradients_and_state_are_the_same(which):
    _, state = stateful(stack(), optax.sgd(0.1))
    plain = Gradients(mse)
    assert_close(Gradients(mse, remat=which)(state, rows()), plain(state, rows()), rtol=1e-4)
    assert "forward" not in vars(state.model.source.module[0])


def temporary(step, state, batch):
    lowered = step.program(state).lower(state, batch)
    return lowered.compile().memory_analysis().temp_size_in_bytes


def test_a_deep_model_takes_less_memory():
    _, state = stateful(stack(8), optax.sgd(0.1))
    batch = rows(512)
    sizes = [
        temporary(make_step(mse, optax.sgd(0.1), remat=which), state, batch)
        for which in (False, True)
    ]
    assert sizes[1] < 0.45 * sizes[0]


def test_a_language_model_learns_the_same():
    pytest.importorskip("transformers")
    model, tx = anyjax.from_pretrained("examples/tiny-llama").train(), optax.adam(1e-3)
    ids = np.arange(24).reshape(2, 12)
    results = []
    for which in (False, True):
        step = make_step(model_loss, tx, remat=which)
        _, metrics = step(TrainState.create(model, tx), {"input_ids": ids, "labels": ids})
        results.append((metrics["loss"], metrics["grad_norm"]))
    assert_close(*results, rtol=1e-4)


@pytest.mark.parametrize("which", ["layers", "attention", "dots"])
def test_policies_by_name(which):
    """What is saved is less, and the gradient is the same."""
    torch.manual_seed(0)
    layer = lambda: torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    module = torch.nn.Sequential(*[layer() for _ in range(4)])
    loss = lambda model, x: (model(x) ** 2).mean()
    state = TrainState.create(anyjax.from_torch(module), optax.sgd(0.1))
    x = np.random.default_rng(0).normal(size=(8, 32, 16)).astype(np.float32)
    plain, again = Gradients(loss), Gradients(loss, remat=which)
    assert_close(again(state, x), plain(state, x), rtol=1e-3)
    sizes = [
        temporary(make_step(loss, optax.sgd(0.1), remat=remat), state, x)
        for remat in (False, which, "layers")
    ]
    assert sizes[1] < 0.9 * sizes[0] and sizes[2] <= sizes[1]


def test_what_cannot_be_chosen_is_told():
    state = TrainState.create(anyjax.from_torch(torch.nn.Linear(4, 2)), optax.sgd(0.1))
    with pytest.raises(WrongValue, match="remat=True chooses no module of Linear"):
        make_step(mse, optax.sgd(0.1), remat=True)(state, rows())
    exported = jax.export.export(jax.jit(jax.numpy.sin))(jax.ShapeDtypeStruct((4,), "float32"))
    state = TrainState.create(anyjax.from_stablehlo(exported.serialize()), optax.sgd(0.1))
    with pytest.raises(Unsupported, match="remat of a model from"):
        make_step(lambda model, x: model(x).sum(), optax.sgd(0.1), remat=True)(state, rows()[0][0])
