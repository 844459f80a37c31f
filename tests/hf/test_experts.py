"""transformers' experts: the loop over the ones that are hit has a program, too."""

import jax
import numpy as np
import pytest
import torch
from transformers import MixtralConfig, MixtralForCausalLM

import anyjax
from tests.tolerance import assert_close


@pytest.fixture(scope="module")
def module():
    torch.manual_seed(0)
    config = MixtralConfig(
        vocab_size=40,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        num_local_experts=4,
        use_cache=False,
    )
    made = MixtralForCausalLM(config).eval()
    made.set_experts_implementation("eager")
    return made


@pytest.mark.conformance
def test_the_eager_loop_has_a_program(module):
    ids = np.array([[3, 4, 5, 6, 7]])
    model = anyjax.from_torch(module)
    want = module(torch.tensor(ids)).logits
    got = jax.jit(lambda params, ids: model.apply(params, ids).logits)(model.params, ids)
    assert_close(got, want.detach().numpy(), reduction=64)
    grads = jax.grad(lambda params: (model.apply(params, ids).logits ** 2).sum())(model.params)
    (want**2).sum().backward()
    for name, parameter in module.named_parameters():
        assert_close(grads[name], parameter.grad.numpy(), reduction=1024)
    assert module.config._experts_implementation == "eager"


def test_gradients_of_each_example(module):
    """The experts' weights are shared by the examples, which JAX's own rule does not batch."""
    ids = np.array([[3, 4, 5, 6, 7], [7, 7, 9, 2, 1]])
    module.set_experts_implementation("grouped_mm")
    model = anyjax.from_torch(module)
    loss = lambda params, ids: (model.apply(params, ids[None]).logits ** 2).sum()
    grads = jax.jit(jax.vmap(jax.grad(loss), (None, 0)))(model.params, ids)
    for row, example in enumerate(torch.tensor(ids)):
        module.zero_grad()
        (module(example[None]).logits ** 2).sum().backward()
        for name, parameter in module.named_parameters():
            assert_close(grads[name][row], parameter.grad.numpy(), reduction=1024)
    module.set_experts_implementation("eager")
