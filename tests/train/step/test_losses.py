import numpy as np
import optax
import pytest
import torch

import anyjax
from anyjax.errors import WrongValue
from anyjax.train import TrainState, loss_of, make_step, model_loss
from tests.train.nets import mlp, rows, stateful

pytestmark = pytest.mark.sample(every=2)


def test_models_of_transformers_have_their_own():
    transformers = pytest.importorskip("transformers")
    sizes = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=1, vocab_size=32)
    config = transformers.BertConfig(**sizes, num_attention_heads=2, max_position_embeddings=16)
    torch.manual_seed(0)
    model = anyjax.from_torch(transformers.BertForSequenceClassification(config)).train()
    tx = optax.adamw(1e-2)
    state, step = TrainState.create(model, tx), make_step(model_loss, tx)
    ids = np.arange(24).reshape(4, 6)
    batch = {"input_ids": ids, "labels": np.array([0, 1, 0, 1])}
    losses = []
    for _ in range(8):
        state, metrics = step(state, batch)
        losses.append(float(metrics["loss"]))
    assert losses[-1] < losses[0]


def test_without_labels_there_is_none():
    _, state = stateful(mlp(), optax.sgd(0.1))
    with pytest.raises(WrongValue, match="no loss"):
        make_step(model_loss, optax.sgd(0.1))(state, {"input": rows()[0]})


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.abs().mean()

    @staticmethod
    def backward(ctx, grad):
        return grad * torch.full((8, 2), 0.5)


class Custom(torch.nn.Module):
    """A loss with a gradient of its own."""

    def forward(self, x, y):
        return Halved.apply(x - y)


@pytest.mark.parametrize(
    "loss", [torch.nn.SmoothL1Loss(), Custom()], ids=lambda x: type(x).__name__
)
def test_a_loss_module_of_torch(loss):
    module = mlp()
    x, y = rows()
    _, state = stateful(module, optax.sgd(1.0))
    state, metrics = make_step(loss_of(anyjax.from_torch(loss)), optax.sgd(1.0))(state, (x, y))
    value = loss(module(torch.from_numpy(x)), torch.from_numpy(y))
    value.backward()
    np.testing.assert_allclose(metrics["loss"], value.item(), rtol=1e-5)
    for name, p in module.named_parameters():
        want = (p - p.grad).detach()
        np.testing.assert_allclose(state.params[name], want, rtol=1e-4, atol=1e-5)
