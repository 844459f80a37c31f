"""The comparison of outputs sees every field."""

import numpy as np
import pytest
import torch
from transformers.generation.utils import GenerateDecoderOnlyOutput

from tests.hf.generation.outputs import assert_same_output

IDS, SCORES = torch.arange(6).reshape(2, 3), (torch.zeros(2, 4), torch.ones(2, 4))
WRONG = {
    "a token": {"sequences": IDS + 1},
    "a score": {"scores": (SCORES[0], SCORES[1] + 0.1)},
    "a step": {"scores": SCORES[:1]},
    "a field": {"scores": None},
    "a field more": {"logits": SCORES},
}


def output(**fields):
    return GenerateDecoderOnlyOutput(**{"sequences": IDS, "scores": SCORES} | fields)


@pytest.mark.parametrize("fields", WRONG.values(), ids=WRONG)
def test_a_difference_is_seen(fields):
    assert_same_output(output(), output(past_key_values=(1,)))
    with pytest.raises((AssertionError, ValueError)):
        assert_same_output(output(**fields), output())


def test_other_classes_are_seen():
    assert_same_output(IDS.numpy(), IDS)
    with pytest.raises(AssertionError):
        assert_same_output(IDS.numpy() + 1, IDS)
    with pytest.raises(AssertionError):
        assert_same_output({"sequences": np.asarray(IDS)}, output(scores=None))
