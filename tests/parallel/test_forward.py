"""The forward pass of one call, by arrays alone."""

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import WrongArguments
from anyjax.parallel.forward import Forward
from tests.tolerance import assert_close

X = np.random.default_rng(0).standard_normal((4, 3), np.float32)


def test_a_call_that_was_made():
    """Its shapes are remembered, a key too; what is no array stays."""
    model = anyjax.from_torch(
        torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Dropout())
    ).train()
    with pytest.raises(WrongArguments, match="no call to trace"):
        Forward.of(model)
    model(X, rng=jax.random.key(1))
    forward = Forward.of(model)
    assert [x.shape for x in forward.arrays] == [(4, 3), ()]
    out = jax.jit(forward.__call__)(model.params, model.state, [X, jax.random.key(1)])
    assert_close(out[0], model(X, rng=jax.random.key(1)), reduction=3)


def test_python_values_stay():
    model = anyjax.from_torch(lambda x, n, flag=True: x * n if flag else x)
    forward = Forward.of(model, (X, 3), {"flag": True})
    assert len(forward.arrays) == 1
    assert_close(forward({}, {}, [X])[0], 3 * X)
