"""reset_parameters of torch, _init_weights of transformers."""

import numpy as np
import pytest
import torch

import anyjax
from anyjax.flax.wrap.torch_initialisers import rerun
from tests.flax.wrap.nets import gpt2, net
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=3)

ARRAYS = lambda tensors: {k: t.detach().numpy() for k, t in tensors.items()}


def test_a_layer_alone_is_what_torch_makes_from_the_seed():
    made = rerun(anyjax.from_torch(torch.nn.Linear(3, 2)).source, 7)
    torch.manual_seed(7)
    assert_close(made, ARRAYS(dict(torch.nn.Linear(3, 2).named_parameters())))


MODULES = {
    "attention": lambda: torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
    "recurrent": lambda: torch.nn.LSTM(3, 4),
    "embedding": lambda: torch.nn.Embedding(5, 3, padding_idx=0),
    "half": lambda: torch.nn.Linear(3, 2, dtype=torch.bfloat16),
    "normalised": lambda: torch.nn.Sequential(torch.nn.Conv1d(2, 2, 1), torch.nn.GroupNorm(1, 2)),
    "frozen": lambda: torch.nn.Linear(3, 2).requires_grad_(False),
}


@pytest.mark.parametrize("make", MODULES.values(), ids=MODULES)
def test_every_parameter_is_made(make):
    module = make()
    made = rerun(anyjax.from_torch(module).source, 1)
    assert set(made) == {name for name, _ in module.named_parameters()}
    assert all(np.isfinite(value.astype(float)).all() for value in made.values())


def test_statistics_are_made_and_seeds_count():
    one, other = rerun(net().source, 1), rerun(net().source, 2)
    assert set(one) == {*net().params, *net().state}
    assert one["features.1.num_batches_tracked"] == 0
    assert not np.array_equal(one["head.weight"], other["head.weight"])


def test_models_of_transformers_have_their_own():
    made = rerun(gpt2().source, 1)
    assert set(made) == set(gpt2().params)
    std = made["transformer.h.0.attn.c_proj.weight"].std()
    assert 0.008 < std < 0.012  # 0.02 / sqrt(2 * 2 layers)
    assert_close(made["transformer.h.0.ln_1.weight"], np.ones(32, np.float32))


def test_a_checkpoint_whose_module_holds_no_weights():
    model = anyjax.from_pretrained("examples/tiny-llama")
    made = rerun(model.source, 1)
    assert set(made) == set(model.params)
    assert 0.03 < made["model.embed_tokens.weight"].std() < 0.05


def test_modules_that_a_function_refers_to():
    linear = torch.nn.Linear(3, 2)
    model = anyjax.from_torch(lambda x: linear(x))
    before = linear.weight.detach().clone()
    assert set(rerun(model.source, 1)) == set(model.params)
    assert torch.equal(before, linear.weight)
