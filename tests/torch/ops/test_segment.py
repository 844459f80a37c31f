import jax
import numpy as np
import pytest
import torch

import anyjax
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=8)

X = np.array([[1, 5], [3, 5], [2, 0], [4, -1], [np.nan, 2]], np.float32)


@pytest.mark.parametrize("initial", [None, 2.0])
@pytest.mark.parametrize("how", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("given", [{"lengths": [2, 0, 3]}, {"offsets": [0, 2, 2, 5]}])
def test_segments_with_an_empty_one_and_nan(how, given, initial):
    given = {k: torch.tensor(v) for k, v in given.items()}
    function = lambda x: torch.segment_reduce(x, how, initial=initial, **given)
    assert_close(anyjax.from_torch(function)(X), function(torch.from_numpy(X)))


@pytest.mark.parametrize("how", ["sum", "mean", "max", "min", "prod"])
def test_gradients_share_among_equals(how):
    function = lambda x: torch.segment_reduce(x, how, lengths=torch.tensor([2, 2]))
    x = torch.from_numpy(X[:4]).requires_grad_()
    (function(x) * torch.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    model = anyjax.from_torch(function)
    scalar = lambda x: (model.apply({}, x) * np.array([[1, 2], [3, 4]], np.float32)).sum()
    assert_close(jax.jit(jax.grad(scalar))(X[:4]), x.grad)
