"""Values inside of models: equal to what torch's hooks see, under every transformation."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

import anyjax
from anyjax.errors import Unsupported, WrongArguments
from anyjax.transforms import edit, intermediates, roll

LAYERS = r"layers\.\d+$|mlp$"


@pytest.fixture(scope="module")
def llama():
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=64,
    )  # fmt: skip
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def model(llama):
    return anyjax.from_torch(llama)


IDS = np.arange(10).reshape(2, 5)


def hooked(module, pattern, *args, **kwargs):
    """Returns what torch's own forward hooks see: outputs by module path."""
    values = {}
    note = lambda path: lambda module, args, out: values.__setitem__(path, out)
    paths = [(path, m) for path, m in module.named_modules() if re.search(pattern, path)]
    handles = [m.register_forward_hook(note(path)) for path, m in paths]
    with torch.no_grad():
        module(*args, **kwargs)
    for handle in handles:
        handle.remove()
    return values


def assert_close(values, expected):
    assert [*values] == [*expected]
    for path, value in values.items():
        np.testing.assert_allclose(value, expected[path].numpy(), atol=1e-6, rtol=1e-5)


def test_values_are_those_of_torchs_hooks(llama, model):
    _, values = intermediates(model, LAYERS)(IDS)
    assert_close(values, hooked(llama, LAYERS, torch.from_numpy(IDS)))


def test_the_output_is_the_models_own(model):
    out, _ = intermediates(model, LAYERS)(IDS)
    np.testing.assert_array_equal(out.logits, model(IDS).logits)


@pytest.mark.conformance
def test_under_jit_vmap_and_grad(model):
    inside = lambda params, ids: intermediates(model, r"layers\.1$").apply(params, ids)[1]
    single = inside(model.params, IDS)["model.layers.1"]
    jitted = jax.jit(inside)(model.params, IDS)["model.layers.1"]
    np.testing.assert_allclose(jitted, single, atol=1e-6)
    rows = jax.vmap(lambda ids: inside(model.params, ids[None]))(IDS)["model.layers.1"]
    np.testing.assert_allclose(rows[:, 0], single, atol=1e-6)
    norm = lambda params: (inside(params, IDS)["model.layers.1"] ** 2).sum()
    gradients = jax.grad(norm)(model.params)
    assert jnp.abs(gradients["model.layers.1.mlp.down_proj.weight"]).sum() > 0
    assert jnp.abs(gradients["model.layers.2.mlp.down_proj.weight"]).sum() == 0


def test_the_gradient_with_respect_to_an_activation_is_torchs(llama, model):
    kept = []
    layer = llama.model.layers[2]
    handle = layer.register_forward_hook(lambda m, args, out: kept.append(out.retain_grad() or out))
    (llama(torch.from_numpy(IDS)).logits ** 2).sum().backward()
    handle.remove()
    llama.zero_grad()

    def loss(shift):
        shifted = edit(model, {r"layers\.2$": lambda hidden: hidden + shift})
        return (shifted.apply(model.params, IDS).logits ** 2).sum()

    gradient = jax.grad(loss)(jnp.zeros(kept[0].shape))
    np.testing.assert_allclose(gradient, kept[0].grad.numpy(), atol=1e-4, rtol=1e-4)


def test_edits_are_those_of_torchs_hooks(llama, model):
    handle = llama.model.layers[1].register_forward_hook(lambda m, args, out: out * 0.5)
    with torch.no_grad():
        expected = llama(torch.from_numpy(IDS)).logits
    handle.remove()
    halved = edit(model, {r"layers\.1$": lambda hidden: hidden * 0.5})
    np.testing.assert_allclose(halved(IDS).logits, expected.numpy(), atol=1e-6)
    np.testing.assert_allclose(halved.train().eval()(IDS).logits, expected.numpy(), atol=1e-6)


def test_rolled_layers_give_the_same(model):
    rolled = roll(model, IDS)
    _, values = intermediates(rolled, LAYERS)(IDS)
    _, expected = intermediates(model, LAYERS)(IDS)
    for path, value in expected.items():
        np.testing.assert_allclose(values[path], value, atol=1e-6)
    zero = {r"layers\.2$": lambda hidden: 0 * hidden}
    np.testing.assert_allclose(
        edit(rolled, zero)(IDS).logits, edit(model, zero)(IDS).logits, atol=1e-6
    )
    assert "1 loop" in str(anyjax.transforms.explain(intermediates(rolled, r"layers\.\d+$"), IDS))


def test_gradients_with_respect_to_activations_of_rolled_layers(model):
    def gradient(m):
        shifted = lambda d: edit(m, {r"layers\.1$": lambda h: h + d}).apply(m.params, IDS).logits
        return jax.grad(lambda d: (shifted(d) ** 2).sum())(jnp.zeros((*IDS.shape, 32)))

    np.testing.assert_allclose(gradient(roll(model, IDS)), gradient(model), rtol=1e-4, atol=1e-6)


def test_an_edit_before_a_tap_is_seen_by_it(model):
    zero = edit(model, {r"layers\.1$": lambda hidden: 0 * hidden})
    _, values = intermediates(zero, r"layers\.1$")(IDS)
    assert not values["model.layers.1"].any()


def test_two_taps_are_nested(model):
    both = intermediates(intermediates(model, r"layers\.0$"), r"layers\.1$")
    (_, first), second = both(IDS)
    assert [*first, *second] == ["model.layers.0", "model.layers.1"]


def test_inputs_of_modules(llama, model):
    _, values = intermediates(model, r"layers\.1\.mlp$", inputs=True)(IDS)
    args, kwargs = values["model.layers.1.mlp"]
    outputs = hooked(llama, r"layers\.1\.post_attention_layernorm$", torch.from_numpy(IDS))
    (normed,) = outputs.values()
    np.testing.assert_allclose(args[0], normed.numpy(), atol=1e-6)
    assert kwargs == {}


class Twice(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)
        self.unused = torch.nn.Linear(3, 3)

    def forward(self, x):
        return self.inner(self.inner(x))


def test_a_module_that_runs_twice_has_two_values():
    model, x = anyjax.from_torch(Twice()), np.ones((2, 3), np.float32)
    out, values = intermediates(model, "inner")(x)
    assert [*values] == ["inner", "inner#1"]
    np.testing.assert_array_equal(values["inner#1"], out)


class Writes(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)

    def forward(self, x):
        y = self.inner(x)
        before = y.clone()
        y.add_(1)
        return y, before


def test_values_are_not_changed_by_later_writes():
    (_, before), values = intermediates(anyjax.from_torch(Writes()), "inner")(np.ones((2, 3), "f"))
    np.testing.assert_array_equal(values["inner"], before)


class Penalty(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)

    def forward(self, x):
        (gradient,) = torch.autograd.grad((self.inner(x) ** 2).sum(), x, create_graph=True)
        return gradient


def test_gradients_inside_of_the_model_go_through_an_edit():
    module, x = Penalty(), torch.ones(2, 3)
    handle = module.inner.register_forward_hook(lambda m, args, out: out**3)
    expected = module(x.requires_grad_())
    handle.remove()
    edited = edit(anyjax.from_torch(module), {"inner": lambda y: y**3})
    np.testing.assert_allclose(edited(np.ones((2, 3), "f")), expected.detach(), rtol=1e-5)


class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: self.inner(x), lambda x: x, (x,))


def test_inside_of_a_branch_values_are_refused_and_edits_work():
    model, x = anyjax.from_torch(Branches()), np.ones((2, 3), np.float32)
    with pytest.raises(Unsupported, match="inside of a loop, a branch"):
        intermediates(model, "inner")(x)
    assert not edit(model, {"inner": lambda y: 0 * y})(x).any()


def test_what_does_not_run_is_an_error():
    model, x = anyjax.from_torch(Twice()), np.ones((2, 3), np.float32)
    with pytest.raises(WrongArguments, match="was called"):
        intermediates(model, "unused")(x)
    with pytest.raises(WrongArguments, match="was called"):
        edit(model, {"unused": lambda y: y})(x)
    with pytest.raises(WrongArguments, match=r"no module has a path with 'iner'(?s:.*)inner"):
        intermediates(model, "iner")
    with pytest.raises(WrongArguments, match="no regular expression"):
        intermediates(model, "(")


def test_programs_speak_of_module_paths(model):
    text = jax.jit(lambda p: model.apply(p, IDS).logits).lower(model.params).compile().as_text()
    assert "model/layers.3/mlp/down_proj/dot_general" in text
