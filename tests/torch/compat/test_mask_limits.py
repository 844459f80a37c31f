"""Masks of transformers come to attention as limits: no array of all pairs of positions is made."""

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.numerics.attention import primitive
from tests.tolerance import assert_close

transformers = pytest.importorskip("transformers")

SMALL = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 50}
SMALL |= {"intermediate_size": 32}
LENGTH = 300
CASES = {
    "causal": ("Llama", {"num_key_value_heads": 2}, (True, None)),
    "window": ("Mistral", {"num_key_value_heads": 2, "sliding_window": 100}, (True, 100)),
    "both ways": ("Bert", {}, (False, None)),
}


def build(name):
    kind, config, limits = CASES[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**SMALL | config)
    return getattr(transformers, f"{kind}Model")(config).eval(), limits


def inputs(pads):
    rng = np.random.default_rng(0)
    mask = np.ones((2, LENGTH), np.int64)
    mask[1, :pads] = 0
    return {"input_ids": rng.integers(1, 50, (2, LENGTH)), "attention_mask": mask}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("pads", [0, 40])
def test_limits_and_values(name, pads, monkeypatch):
    calls, attention = [], primitive.attention
    record = lambda form, *arrays: calls.append((form, arrays)) or attention(form, *arrays)
    monkeypatch.setattr(primitive, "attention", record)
    module, limits = build(name)
    model = anyjax.from_torch(module)
    out = model(**inputs(pads)).last_hidden_state
    ((form, (query, key, _, mask)),) = calls
    assert (form.causal, form.window, form.shift) == (*limits, 0)
    assert mask.shape == (2, 1, 1, LENGTH)
    heads = getattr(module.config, "num_key_value_heads", 4)
    assert (query.shape[1], key.shape[1]) == (4, heads)  # no key is repeated
    with torch.no_grad():
        tensors = {k: torch.from_numpy(v) for k, v in inputs(pads).items()}
        expected = module(**tensors).last_hidden_state.numpy()
    assert_close(out, expected, reduction=4 * LENGTH)


def test_gradients():
    module, _ = build("causal")
    model, given = anyjax.from_torch(module), inputs(40)
    loss = lambda params: (model.apply(params, **given).last_hidden_state ** 2).sum()
    grads = jax.jit(jax.grad(loss))(model.params)
    tensors = {k: torch.from_numpy(v) for k, v in given.items()}
    module(**tensors).last_hidden_state.square().sum().backward()
    for name, param in module.named_parameters():
        if param.grad is not None:
            assert_close(grads[name], param.grad.numpy(), reduction=64 * LENGTH)


def test_a_mask_of_more_than_limits_stays_a_mask():
    """Positions that begin anew: several texts in a row."""
    module, _ = build("causal")
    model = anyjax.from_torch(module)
    positions = np.tile(np.arange(LENGTH // 2), (2, 2))
    given = {"input_ids": inputs(0)["input_ids"], "position_ids": positions, "use_cache": False}
    with torch.no_grad():
        tensors = {k: torch.as_tensor(v) for k, v in given.items() if k != "use_cache"}
        expected = module(**tensors, use_cache=False).last_hidden_state.numpy()
    assert_close(model(**given).last_hidden_state, expected, reduction=4 * LENGTH)


@pytest.mark.parametrize("by_position", [True, False])
def test_limits_reach_layers_that_are_computed_again(by_position, monkeypatch):
    """Gradient checkpointing, whether a layer is given its mask by position or by name."""
    calls, attention = [], primitive.attention
    record = lambda form, *arrays: calls.append((form, arrays)) or attention(form, *arrays)
    monkeypatch.setattr(primitive, "attention", record)
    module, limits = build("causal")
    name = "activation_checkpointing_enable"  # its other name is deprecated from 5.23 on
    getattr(module, name, module.gradient_checkpointing_enable)()
    layer, again = module.layers[0], torch.utils.checkpoint.checkpoint

    class Positional(torch.nn.Module):
        def forward(self, hidden, attention_mask=None, **kwargs):
            run = lambda hidden, mask: layer.forward(hidden, attention_mask=mask, **kwargs)
            return again(run, hidden, attention_mask, use_reentrant=False)

    if by_position:
        module.layers[0] = Positional()
    model, given = anyjax.from_torch(module.train()), inputs(40)
    loss = lambda p: (model.apply(p, **given, use_cache=False).last_hidden_state ** 2).sum()
    grads = jax.jit(jax.grad(loss))(model.params)
    assert [(f.causal, f.window, f.shift) for f, _ in calls] == [(*limits, 0)]
    assert calls[0][1][3].shape == (2, 1, 1, LENGTH)
    tensors = {k: torch.from_numpy(v) for k, v in given.items()}
    module(**tensors, use_cache=False).last_hidden_state.square().sum().backward()
    for name, param in module.named_parameters():
        if param.grad is not None:
            assert_close(grads[name], param.grad.numpy(), reduction=64 * LENGTH)
