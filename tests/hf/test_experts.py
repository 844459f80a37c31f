"""transformers' experts: the loop over the ones that are hit has a program, too."""

import jax
import numpy as np
import pytest
import torch
from transformers import MixtralConfig, MixtralForCausalLM

import tojax
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


def test_the_eager_loop_has_a_program(module):
    ids = np.array([[3, 4, 5, 6, 7]])
    model = tojax.from_torch(module)
    want = module(torch.tensor(ids)).logits
    got = jax.jit(lambda params, ids: model.apply(params, ids).logits)(model.params, ids)
    assert_close(got, want.detach().numpy(), reduction=64)
    grads = jax.grad(lambda params: (model.apply(params, ids).logits ** 2).sum())(model.params)
    (want**2).sum().backward()
    for name, parameter in module.named_parameters():
        assert_close(grads[name], parameter.grad.numpy(), reduction=1024)
    assert module.config._experts_implementation == "eager"
