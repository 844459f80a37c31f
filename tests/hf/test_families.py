"""Every promised family: values under jit against torch, gradients of every parameter."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers import (
    BartConfig,
    BartForSequenceClassification,
    DebertaV2Config,
    DebertaV2ForSequenceClassification,
    LongT5Config,
    LongT5ForConditionalGeneration,
)

import anyjax
from anyjax.errors import UncheckedValues
from tests.models import tiny
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=18)

VALUES, GRADIENTS = 1e-4, 1e-3  # relative to the largest value of each array


def floats_of_torch(out):
    from torch.utils._pytree import tree_leaves

    return [x for x in tree_leaves(out) if isinstance(x, torch.Tensor) and x.is_floating_point()]


def floats(out):
    return [
        x
        for x in jax.tree.leaves(out)
        if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jnp.floating)
    ]


@pytest.mark.parametrize("name", tiny.FAMILIES)
def test_family(name):
    module, inputs = tiny.build(name)
    want = floats_of_torch(module(**inputs))  # first: RWKV rescales its weights when it is called
    model = anyjax.from_torch(module)
    tensors = {k: v for k, v in inputs.items() if isinstance(v, torch.Tensor)}
    plain = {k: v for k, v in inputs.items() if k not in tensors}
    arrays = {k: v.numpy() for k, v in tensors.items()}
    got = jax.jit(lambda p, x: floats(model.apply(p, **x, **plain)))(model.params, arrays)
    assert_close(got, [w.detach() for w in want], rtol=VALUES)

    index = next(i for i, x in enumerate(want) if x.requires_grad)
    (want[index] ** 2).mean().backward()
    loss = lambda p, x: (floats(model.apply(p, **x, **plain))[index] ** 2).mean()
    grads = jax.jit(jax.grad(loss))(model.params, arrays)
    named = dict(module.named_parameters())
    largest = max(float(p.grad.abs().max()) for p in named.values() if p.grad is not None)
    for key, grad in grads.items():
        reference = named[key].grad
        reference = torch.zeros_like(named[key]) if reference is None else reference
        scale = max(
            float(reference.abs().max()), 1e-3 * largest
        )  # below that torch's own value is rounding
        assert_close({key: grad}, {key: reference}, rtol=GRADIENTS, scale=scale)


@pytest.mark.parametrize("name", ["llama", "bert", "clip"])
def test_outputs_keep_their_class(name):
    module, inputs = tiny.build(name)
    want = module(**inputs)
    got = anyjax.from_torch(module)(**inputs)
    assert type(got) is type(want)
    assert list(got.keys()) == list(want.keys())
    leaf = next(k for k, v in want.items() if isinstance(v, torch.Tensor))
    assert isinstance(got[leaf], jax.Array)
    assert got[leaf] is getattr(got, leaf)


def test_caches_come_back_and_go_in():
    module, _ = tiny.build("llama")
    model = anyjax.from_torch(module)
    ids = tiny.ids().numpy()
    first = model(ids[:, :6], use_cache=True)
    assert type(first.to_tuple()[1]).__name__ == "DynamicCache"
    second = model(ids[:, 6:], past_key_values=first.to_tuple()[1], use_cache=True)
    whole = module(torch.from_numpy(ids), use_cache=False).logits
    assert_close(np.concatenate([first.logits, second.logits], 1), whole.detach(), rtol=VALUES)


def test_a_mask_that_torch_makes_of_none():
    """LongT5 makes it outside of torch.compile alone, and reads it."""
    torch.manual_seed(0)
    shape = dict(vocab_size=60, d_model=16, d_kv=4, d_ff=24, num_layers=1, num_heads=4)
    config = LongT5Config(**shape, local_radius=3, use_cache=False)
    module = LongT5ForConditionalGeneration(config).eval()
    ids = np.array([[3, 4, 5, 6, 7, 8, 9]])
    want = module(input_ids=torch.tensor(ids), decoder_input_ids=torch.tensor(ids)).logits
    got = anyjax.from_torch(module)(input_ids=ids, decoder_input_ids=ids).logits
    assert_close(got, want.detach().numpy(), rtol=VALUES)


def test_a_head_that_reads_the_last_end_token():
    """BART's, whose checks of the tokens are left out where they are traced."""
    torch.manual_seed(0)
    sizes = dict(vocab_size=60, d_model=16, encoder_layers=1, decoder_layers=1, num_labels=3)
    heads = dict(encoder_attention_heads=2, decoder_attention_heads=2, max_position_embeddings=32)
    config = BartConfig(**sizes, **heads, encoder_ffn_dim=24, decoder_ffn_dim=24)
    module = BartForSequenceClassification(config).eval()
    ids = np.array([[0, 5, 6, 7, 2, 2], [0, 8, 2, 9, 4, 2]])
    labels = np.array([1, 2])
    want = module(torch.tensor(ids), labels=torch.tensor(labels))
    model = anyjax.from_torch(module)
    with pytest.warns(UncheckedValues):
        got = jax.jit(lambda p, **x: model.apply(p, **x))(
            model.params, input_ids=ids, labels=labels
        )
    assert_close(got.logits, want.logits.detach(), rtol=VALUES)
    assert_close(got.loss, want.loss.detach(), rtol=VALUES)


def test_hidden_states_of_a_model_that_torch_never_ran():
    """transformers installs hooks for them in the first call, which are gone after each trace."""
    model = anyjax.from_pretrained("examples/tiny-llama")
    ids = np.array([[4, 5, 7]])
    runs = [model.apply(model.params, ids, output_hidden_states=True) for _ in range(3)]
    counts = {len(run.hidden_states) for run in runs}
    assert counts == {model.to_torch().config.num_hidden_layers + 1}


def test_a_loss_that_leaves_labels_out():
    """DeBERTa's, of the places where there is a label."""
    torch.manual_seed(0)
    sizes = dict(vocab_size=60, hidden_size=16, num_hidden_layers=1, intermediate_size=32)
    config = DebertaV2Config(**sizes, num_attention_heads=2, num_labels=3)
    module = DebertaV2ForSequenceClassification(config).eval()
    ids, labels = np.array([[3, 4, 5, 6], [7, 8, 9, 10], [11, 12, 13, 14]]), np.array([2, -100, 0])
    want = module(torch.tensor(ids), labels=torch.tensor(labels)).loss
    want.backward()
    model = anyjax.from_torch(module)
    loss = lambda p, ids, labels: model.apply(p, ids, labels=labels).loss
    value, grads = jax.jit(jax.value_and_grad(loss))(model.params, ids, labels)
    assert_close(value, want.detach(), rtol=VALUES)
    assert_close(grads["classifier.weight"], module.classifier.weight.grad, rtol=GRADIENTS)
