import re

import jax
import numpy as np
import optax
import pytest
import torch

import anyjax
from anyjax.errors import WrongValue
from anyjax.numerics import head_loss
from anyjax.train import TrainState, loss_of, make_step, model_loss
from anyjax.train.losses import causal_lm
from tests.tolerance import assert_close
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


def language_model(dtype=None):
    transformers = pytest.importorskip("transformers")
    sizes = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=1, vocab_size=300)
    config = transformers.LlamaConfig(**sizes, num_attention_heads=2, num_key_value_heads=2)
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config).to(dtype or torch.float32)


def test_next_tokens():
    """Labels are the tokens where none are given, those of padding do not count."""
    module = language_model().eval()
    model = anyjax.from_torch(module)
    ids = np.random.default_rng(0).integers(3, 300, (2, 8))
    mask = np.array([[1] * 8, [1] * 5 + [0] * 3])
    labels = np.where(mask, ids, -100)
    with torch.no_grad():
        of = lambda *x, **more: module(*map(torch.tensor, x), **more).loss.numpy()
        want = of(ids, mask, labels=torch.tensor(labels))
        unmasked = of(ids, labels=torch.tensor(ids))
    loss, aux = causal_lm(model, ids)
    np.testing.assert_allclose(loss, unmasked, 1e-5)
    assert aux["tokens"] == 2 * 7
    for more in ({}, {"labels": labels}):
        loss, aux = causal_lm(model, {"input_ids": ids, "attention_mask": mask, **more})
        np.testing.assert_allclose(loss, want, 1e-5)
        assert aux["tokens"] == 7 + 4


def program_of(step, state, batch):
    text = step.program(state).lower(state, batch).compile().as_text()
    shapes = re.findall(r"(f32|bf16)\[([\d,]+)\]", text)
    return text, {(kind, int(np.prod([*map(int, x.split(","))]))) for kind, x in shapes}


@pytest.mark.parametrize("compute_dtype", [None, "bfloat16"])
def test_a_step_has_no_logits_of_all_positions(compute_dtype, monkeypatch):
    monkeypatch.setattr(head_loss, "SMALLEST", 1000)
    monkeypatch.setattr(head_loss, "ROWS", 32)
    tx = optax.adamw(1e-3)
    state = TrainState.create(anyjax.from_torch(language_model().train()), tx)
    step = make_step(causal_lm, tx, compute_dtype=compute_dtype)
    _, sizes = program_of(step, state, {"input_ids": np.zeros((4, 64), np.int32)})
    assert ("f32", 32 * 300) in sizes
    assert not sizes & {("f32", 4 * 64 * 300), ("bf16", 4 * 64 * 300)}


@pytest.mark.parametrize("kind", ["Auto", "Explicit"])
def test_a_step_keeps_rows_where_they_are(kind, monkeypatch):
    tx, ids = optax.sgd(1.0), np.random.default_rng(0).integers(3, 300, (8, 24))
    batch = {"input_ids": ids.astype(np.int32)}
    make = lambda: TrainState.create(anyjax.from_torch(language_model()).train(), tx)
    want, metrics = make_step(causal_lm, tx)(make(), batch)
    monkeypatch.setattr(head_loss, "SMALLEST", 1000)
    monkeypatch.setattr(head_loss, "ROWS", 4)
    mesh = jax.make_mesh((8,), ("data",), axis_types=(getattr(jax.sharding.AxisType, kind),))
    over, whole = (jax.NamedSharding(mesh, jax.P(*axes)) for axes in (("data",), ()))
    with jax.set_mesh(mesh):
        state = jax.device_put(make(), whole)
        batch = jax.device_put(batch, over)
        step = make_step(causal_lm, tx)
        text, sizes = program_of(step, state, batch)
        found, blockwise = step(state, batch)
    assert ("f32", 4 * 300) in sizes and ("f32", 24 * 300) not in sizes
    gathered = re.findall(r"= (?:f32|bf16)\[([\d,]+)\]\S* all-gather", text)
    assert not gathered
    assert_close(blockwise["loss"], metrics["loss"], rtol=1e-5)
    assert_close(found.params, want.params, rtol=1e-4)


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
