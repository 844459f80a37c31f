import jax
import numpy as np
import pytest
import torch
from torch import nn
from transformers import (
    BlenderbotSmallConfig,
    BlenderbotSmallModel,
    MarianConfig,
    MarianMTModel,
    PegasusConfig,
    PegasusModel,
)
from transformers.utils import is_torchdynamo_compiling

import anyjax
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=5)

ONES = np.ones((2, 3), np.float32)


class Own(nn.Module):
    """As transformers' models have it, and as one may write it oneself."""

    def __init__(self, compiling):
        super().__init__()
        self.compiling = compiling

    def forward(self, x, mask=None, scale=None):
        if mask is None and not self.compiling():
            width = x.shape[1]
            mask = torch.full((width,), 2.0)
        if (
            scale is None  # on several lines
            and not self.compiling()
        ):
            scale = 3.0
        return x * mask[None] * scale


class Direct(Own):
    """Asks torch itself."""

    def forward(self, x, mask=None):
        if mask is None and x.dim() == 2 and not torch.compiler.is_compiling():
            mask = torch.full((3,), 6.0)
        return x * mask


@pytest.mark.parametrize("kind", [Own, Direct])
def test_a_default_is_made(kind):
    model = anyjax.from_torch(kind(is_torchdynamo_compiling))
    np.testing.assert_array_equal(model(ONES), 6 * ONES)


def test_arguments_that_are_given():
    model = anyjax.from_torch(Own(is_torchdynamo_compiling))
    np.testing.assert_array_equal(model(ONES, ONES[0], scale=5), 5 * ONES)


class Others(nn.Module):
    """Other questions get the true answer."""

    def forward(self, x, mask=None):
        if not torch.compiler.is_compiling():
            mask = x
        if mask is None and not torch.compiler.is_compiling():
            x = x + 1
        if mask is None or torch.compiler.is_compiling():
            mask = 1
        return x * mask if torch.compiler.is_compiling() else x * 0


def test_other_questions_are_answered_as_ever():
    np.testing.assert_array_equal(anyjax.from_torch(Others())(ONES), ONES)
    assert not torch.compiler.is_compiling()


class Keeping(nn.Module):
    """What the last call has left, where torch compiles."""

    size = 0

    def forward(self, x, groups):
        if torch.compiler.is_compiling():
            pass
        elif torch.jit.is_scripting():
            self.size = 1
        else:
            if x.dim() == 1:
                self.size = int(groups.max().item() + 1)
        return torch.zeros(self.size, dtype=x.dtype).index_add(0, groups, x)


class KeepingShort(Keeping):
    def forward(self, x, groups):
        if not torch.compiler.is_compiling():
            self.size = int(groups.max()) + 1
        return torch.zeros(self.size, dtype=x.dtype).index_add(0, groups, x)


@pytest.mark.parametrize("kind", [Keeping, KeepingShort])
def test_attributes_that_are_used_are_computed(kind):
    x, groups = np.arange(5, dtype=np.float32), np.array([0, 2, 2, 1, 0], np.int32)
    module, model = kind(), anyjax.from_torch(kind())
    want = module(torch.from_numpy(x), torch.from_numpy(groups)).numpy()
    assert_close(model.apply({}, x, groups, mutable=True)[0], want, reduction=4)
    out = jax.jit(model.apply)({}, x, groups)
    assert_close(out.values[: int(out.length)], want, reduction=4)


SIZES = dict(vocab_size=60, d_model=16, encoder_layers=1, decoder_layers=1)
SIZES |= dict(encoder_attention_heads=2, decoder_attention_heads=2, max_position_embeddings=32)
SIZES |= dict(encoder_ffn_dim=24, decoder_ffn_dim=24, use_cache=False)


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (BlenderbotSmallConfig, BlenderbotSmallModel),
        (MarianConfig, MarianMTModel),
        (PegasusConfig, PegasusModel),
    ],
)
def test_models_of_transformers_without_masks(config, kind):
    torch.manual_seed(0)
    module = kind(config(**SIZES, pad_token_id=0, decoder_start_token_id=1)).eval()
    ids = np.array([[3, 4, 5, 6]])
    want = module(input_ids=torch.tensor(ids), decoder_input_ids=torch.tensor(ids))[0]
    got = anyjax.from_torch(module)(input_ids=ids, decoder_input_ids=ids)[0]
    assert_close(got, want.detach().numpy(), rtol=1e-4)
