"""Right-padded prompts, a tokenizer's default, give wrong text: that is said."""

import warnings

import numpy as np
import pytest

import anyjax
from anyjax.errors import RightPadded

IDS = np.array([[4, 5, 7, 9], [4, 5, 2, 2]])
MASK = np.array([[1, 1, 1, 1], [1, 1, 0, 0]])


def test_a_warning_names_the_way_out():
    model = anyjax.from_pretrained("examples/tiny-llama")
    with pytest.warns(RightPadded, match='padding_side="left"'):
        anyjax.generate(model, IDS, MASK, max_new_tokens=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RightPadded)
        anyjax.generate(model, IDS[:, ::-1], MASK[:, ::-1], max_new_tokens=2)
        anyjax.generate(model, IDS, max_new_tokens=2)
