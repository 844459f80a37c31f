"""Hidden states and attentions, which transformers records by hooks."""

import jax
import numpy as np
import pytest
import torch
from transformers import GitConfig, GitForCausalLM
from transformers.modeling_outputs import BaseModelOutput

import anyjax
from anyjax import trees
from tests.models.tiny import TEXT, VISION, image, text
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=2)

WANTED = {"output_hidden_states": True, "output_attentions": True}


@pytest.fixture(scope="module")
def module():
    torch.manual_seed(0)
    config = GitConfig(**TEXT, vision_config=VISION, attn_implementation="eager", use_cache=False)
    return GitForCausalLM(config).eval()


@pytest.mark.parametrize("compiled", [True, False])
def test_a_model_inside_another_ends_no_recording(module, compiled):
    given = text() | image()
    want = module(**given, **WANTED)
    model = anyjax.from_torch(module)
    call = lambda params, given: model.apply(params, **given, **WANTED)
    arrays = {k: v.numpy() for k, v in given.items()}
    got = (jax.jit(call) if compiled else call)(model.params, arrays)
    assert list(got) == list(want)
    assert len(got["hidden_states"]) == len(want.hidden_states) == 3
    assert_close(got["hidden_states"], want.hidden_states, reduction=64)
    assert_close(got["attentions"], want.attentions, reduction=64)


def test_a_tuple_instead_of_names(module):
    given = text() | image()
    want = module(**given, return_dict=False)
    got = anyjax.from_torch(module)(**{k: v.numpy() for k, v in given.items()}, return_dict=False)
    assert isinstance(got, tuple) and len(got) == len(want)
    assert_close(got[0], want[0], reduction=64)


def test_outputs_keep_their_order_and_so_their_positions():
    out = BaseModelOutput(last_hidden_state=np.ones(1))
    out["attentions"], out["hidden_states"] = (np.ones(2),), (np.ones(3),)
    got = jax.tree.map(lambda x: 2 * x, trees.register(out))
    assert list(got) == ["last_hidden_state", "attentions", "hidden_states"]
    assert got[1][0].shape == (2,) and got.hidden_states[0].shape == (3,)
