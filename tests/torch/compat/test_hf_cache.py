"""Caches by either name, with whatever transformers is installed."""

import numpy as np
import pytest

import anyjax
from anyjax.errors import WrongArguments
from anyjax.torch.compat.hf_cache import NAMES, renamed
from tests.models import tiny
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=5)

IDS = np.array([[1, 5, 7, 9]])


@pytest.fixture(scope="module")
def model():
    return anyjax.from_torch(tiny.llama(num_hidden_layers=1))


@pytest.fixture(scope="module")
def cache(model):
    return model(IDS[:, :3], use_cache=True).to_tuple()[1]


@pytest.mark.parametrize("name", NAMES)
def test_each_name_is_the_argument(model, cache, name):
    out = model(IDS[:, 3:], use_cache=True, **{name: cache})
    assert_close(out.logits[0, 0], model(IDS).logits[0, -1], reduction=64)


def test_two_names_are_refused(model, cache):
    with pytest.raises(WrongArguments, match="a cache as cache and as past_key_values"):
        model(IDS[:, 3:], cache=cache, past_key_values=cache)


def test_other_modules_keep_their_arguments():
    import torch

    class Net(torch.nn.Module):
        def forward(self, x, **kwargs):
            return x + kwargs["cache"]

    net = anyjax.from_torch(Net())
    assert net(np.ones(2, "f"), cache=np.ones(2, "f")).tolist() == [2.0, 2.0]
    assert renamed(net.source.module, net.source.signature, {"cache_params": 1}) == {
        "cache_params": 1
    }
