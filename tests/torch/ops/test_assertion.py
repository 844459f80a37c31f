import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import ForwardFailed


def positive(x):
    torch._assert_async((x > 0).all(), "not positive")
    return x + 1


def test_an_assertion():
    model, bad = anyjax.from_torch(positive), np.array([-1.0], np.float32)
    assert model.apply({}, -bad) == 2
    with pytest.raises(ForwardFailed, match="not positive"):
        model.apply({}, bad)
    assert np.isnan(jax.jit(model.apply)({}, bad))


def checked(x):
    torch._check_tensor_all(x > 0, lambda: f"{x.sum()} is not positive")
    return x + 1


def test_a_check_of_all_values():
    model, bad = anyjax.from_torch(checked), np.array([-1.0], np.float32)
    assert model.apply({}, -bad) == 2
    with pytest.raises(RuntimeError, match="is not positive"):
        model.apply({}, bad)
    assert np.isnan(jax.jit(model.apply)({}, bad))
