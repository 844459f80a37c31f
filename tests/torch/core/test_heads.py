"""Losses of models' own heads come in blocks of rows, and are those of torch."""

import functools

import jax
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import anyjax
from anyjax.numerics import head_loss
from tests.tolerance import assert_close

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 50}
SMALL |= {"num_key_value_heads": 2, "intermediate_size": 32, "bos_token_id": 1, "eos_token_id": 2}
MODELS = {
    "Llama": SMALL,
    "GPT2": {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 50},
    "Gemma2": {**SMALL, "head_dim": 8, "final_logit_softcapping": 0.1},
    "Cohere": {**SMALL, "logit_scale": 3.0},
    "Granite": {**SMALL, "logits_scaling": 3.0},
    "OPT": {**SMALL, "ffn_dim": 32, "word_embed_proj_dim": 16},
    "Phi": SMALL,
}


@pytest.fixture(autouse=True)
def blocks(monkeypatch):
    """Small ones, and how many losses came in them."""
    monkeypatch.setattr(head_loss, "SMALLEST", 400)
    monkeypatch.setattr(head_loss, "ROWS", 8)
    calls, whole = [], head_loss.linear_cross_entropy
    record = lambda *args, **options: calls.append(args) or whole(*args, **options)
    monkeypatch.setattr(head_loss, "linear_cross_entropy", record)
    return calls


@functools.cache
def language_model(name, dtype=torch.float32):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    kind = f"{name}LMHeadModel" if name == "GPT2" else f"{name}ForCausalLM"
    cls = getattr(transformers, kind)
    return cls(cls.config_class(**MODELS[name])).to(dtype).eval()


def padded(**more):
    """Two texts, the second one shorter, the beginning of the first one without labels."""
    ids = np.random.default_rng(0).integers(3, 50, (2, 9))
    mask = np.ones_like(ids)
    mask[1, 6:] = 0
    labels = np.where(mask, ids, -100)
    labels[0, :3] = -100
    return {"input_ids": ids, "attention_mask": mask, "labels": labels, **more}


def of_torch(module, loss, given):
    """torch's value and gradients."""
    module.zero_grad()
    given = {k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in given.items()}
    value = loss(module(**given))
    value.backward()
    grads = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    return value.detach().float().numpy(), {k: x.float().numpy() for k, x in grads.items()}


def of_jax(module, loss, given):
    """The same of a converted model, by the same names."""
    model = anyjax.from_torch(module)
    run = lambda params: loss(model.apply(params, state=model.state, **given))
    value, grads = jax.jit(jax.value_and_grad(run))(model.params)
    names = {name for name, _ in module.named_parameters()}
    return value, {k: np.asarray(x, np.float32) for k, x in grads.items() if k in names}


def assert_same(module, given, loss=lambda out: out.loss, rtol=None):
    value, grads = of_jax(module, loss, given)
    want, wanted = of_torch(module, loss, given)
    np.testing.assert_allclose(value, want, rtol=rtol or 1e-5)
    scale = max(np.abs(x).max() for x in wanted.values())
    for name, grad in wanted.items():
        assert_close(grads[name], grad, rtol=rtol or 1e-4, scale=scale)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", MODELS)
def test_models_of_transformers(name, dtype, blocks):
    rtol = None if dtype is torch.float32 else 0.03
    assert_same(language_model(name, dtype), padded(), rtol=rtol)
    assert len(blocks) == 1


@pytest.mark.parametrize(
    "more",
    [
        {"num_items_in_batch": torch.tensor(40)},
        {"num_items_in_batch": 40},
        {"shift_labels": padded()["labels"]},
        {"ignore_index": 7},
        {"logits_to_keep": 9},
    ],
    ids=lambda more: next(iter(more)),
)
def test_options_of_the_loss(more, blocks):
    given = padded(**more)
    if "ignore_index" in more:
        given["labels"] = np.where(given["labels"] < 0, 7, given["labels"])
    assert_same(language_model("Llama"), given)
    assert len(blocks) == 1


def test_no_label_at_all(blocks):
    """torch's mean of nothing is NaN, and so are its gradients."""
    given = padded()
    given["labels"] = np.full_like(given["labels"], -100)
    value, _ = of_jax(language_model("Llama"), lambda out: out.loss, given)
    assert np.isnan(value) and len(blocks) == 1
    value, grads = of_jax(
        language_model("Llama"), lambda out: out.loss, {**given, "num_items_in_batch": 1}
    )
    assert value == 0 and not any(x.any() for x in grads.values())


def test_logits_stay_what_they_are(blocks):
    module, given = language_model("Gemma2"), padded()
    assert_same(module, given, lambda out: out.loss + (out.logits.reshape(-1) ** 2).mean())
    out = anyjax.from_torch(module)(**given)
    with torch.no_grad():
        want = module(**{k: torch.from_numpy(v) for k, v in given.items()})
    assert_close((out.loss, out.logits), (want.loss.numpy(), want.logits.numpy()), rtol=1e-4)


class Head(torch.nn.Module):
    """A head, and a loss of what it gives."""

    def __init__(self, loss):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head, self.loss = torch.nn.Linear(4, 6), torch.nn.Linear(6, 50), loss

    def forward(self, x, labels):
        return self.loss(self.head(torch.tanh(self.body(x))), labels)


def flat(logits, labels, **options):
    return F.cross_entropy(logits.reshape(-1, 50), labels.reshape(-1), **options)


def shifted(logits, labels):
    return flat(logits[:, :-1, :].contiguous(), labels[:, 1:])


def without_gradient(logits, labels):
    with torch.no_grad():
        held = logits * 2
    return flat(held, labels) + logits.mean()


def over_columns(logits, labels):
    return flat(logits.transpose(1, 2).reshape(2, 9, 50), labels)


def in_place(logits, labels):
    logits[:, 0] = 1
    return flat(logits.mul_(2), labels)


LOSSES = {
    "flat": (flat, 1),
    "sum": (lambda x, y: flat(x, y, reduction="sum"), 1),
    "shifted": (shifted, 1),
    "scaled": (lambda x, y: flat((x.double() / 3).float() * 2, y), 1),
    "twice": (lambda x, y: flat(x, y) + flat(x, y % 7), 2),
    "rows": (lambda x, y: flat(x, y, reduction="none").mean(), 0),
    "smoothed": (lambda x, y: flat(x, y, label_smoothing=0.1), 0),
    "weighted": (lambda x, y: flat(x, y, weight=torch.arange(50.0)), 0),
    "plus": (lambda x, y: flat(x + 1, y), 0),
    "of numbers": (lambda x, y: flat(x * torch.arange(50.0), y), 0),
    "some classes": (lambda x, y: F.cross_entropy(x[..., :40].reshape(-1, 40), y.view(-1) % 40), 0),
    "other rows": (lambda x, y: flat(x.flip(1), y), 0),
    "other columns": (over_columns, 0),
    "in place": (in_place, 0),
    "no gradient": (without_gradient, 0),
    "detached": (lambda x, y: flat(x.detach(), y) + x.mean(), 0),
    "probabilities": (lambda x, y: F.cross_entropy(x.view(-1, 50), x.view(-1, 50).softmax(-1)), 0),
}


@pytest.mark.filterwarnings("ignore::anyjax.errors.UncheckedValues")
@pytest.mark.parametrize("name", LOSSES)
def test_what_is_still_a_head_and_what_is_not(name, blocks):
    loss, count = LOSSES[name]
    x = np.random.default_rng(0).normal(size=(2, 9, 4)).astype(np.float32)
    given = {"x": x, "labels": np.arange(18).reshape(2, 9)}
    assert_same(Head(loss), given, lambda out: out, rtol=1e-4)
    assert len(blocks) == count


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_function_of_torch(reduction, blocks):
    if not hasattr(F, "linear_cross_entropy"):
        pytest.skip("torch has none")
    head, labels = torch.nn.Linear(6, 50), torch.arange(18) % 5
    loss = lambda x: F.linear_cross_entropy(
        x, head.weight, labels, linear_bias=head.bias, reduction=reduction, ignore_index=3
    )
    x = torch.randn(18, 6, requires_grad=True)
    loss(x).backward()
    run = anyjax.from_torch(loss)
    value, slope = jax.jit(jax.value_and_grad(lambda x: run(x)))(x.detach().numpy())
    assert_close((value, slope), (loss(x).detach().numpy(), x.grad.numpy()), rtol=1e-4)
    assert len(blocks) == 1


def test_a_gradient_that_the_code_asks_for_itself():
    def penalized(logits, labels):
        loss = flat(logits, labels)
        (slope,) = torch.autograd.grad(loss, logits, create_graph=True)
        return loss + slope.square().sum()

    x = np.random.default_rng(0).normal(size=(2, 9, 4)).astype(np.float32)
    given = {"x": x, "labels": np.arange(18).reshape(2, 9)}
    assert_same(Head(penalized), given, lambda out: out, rtol=1e-3)


def test_an_edited_head_is_no_head(blocks):
    module, given = language_model("Llama"), padded()
    edited = anyjax.transforms.edit(anyjax.from_torch(module), {"lm_head": lambda x: x + 1})
    loss = jax.jit(lambda: edited(**given).loss)()
    assert not blocks
    np.testing.assert_allclose(loss, of_torch(module, lambda out: out.loss, given)[0], rtol=1e-5)
