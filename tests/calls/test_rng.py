"""What is no key is refused before anything is traced."""

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import WrongArguments

X = np.ones(8, np.float32)


@pytest.fixture(scope="module")
def model():
    return anyjax.from_torch(torch.nn.Dropout(0.5)).train()


@pytest.mark.parametrize("rng", [0, 1.5, "0", np.zeros(2, np.float32), np.int32(3)])
def test_no_keys(model, rng):
    with pytest.raises(WrongArguments, match="not a key"):
        model(X, rng=rng)
    with pytest.raises(WrongArguments, match="not a key"):
        model.apply({}, X, rng=rng)


def test_a_seed_is_told_to_be_a_key(model):
    with pytest.raises(WrongArguments, match=r"pass rng=jax\.random\.key\(7\)"):
        model(X, rng=7)


def test_keys_and_their_numbers(model):
    key = jax.random.key(0)
    numbers = jax.random.key_data(key)
    assert np.array_equal(model(X, rng=key), model(X, rng=numbers))
    assert np.array_equal(model(X, rng=key), jax.jit(model.apply)({}, X, rng=key))


def test_no_checkpoints():
    with pytest.raises(WrongArguments, match="from_pretrained takes a folder or a hub id"):
        anyjax.from_pretrained(torch.nn.ReLU())
