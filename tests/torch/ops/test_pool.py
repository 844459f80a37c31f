import jax
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import anyjax
from tests.tolerance import assert_close


def test_samples_of_a_fractional_pool_may_be_negative_or_of_a_larger_batch():
    x = np.random.default_rng(0).normal(size=(2, 16, 16)).astype(np.float32)
    samples = torch.tensor([[[-0.7, 4.9], [0.2, -0.1]], [[0.5, 0.5], [0.5, 0.5]]])
    function = lambda x: torch.nn.functional.fractional_max_pool2d(
        x, 1, output_size=8, _random_samples=samples, return_indices=True
    )
    assert_close(anyjax.from_torch(function)(x), function(torch.from_numpy(x)))


WINDOWS = {
    "a thousand places": lambda x: F.avg_pool2d(x, 1000, ceil_mode=True),
    "beyond the padding": lambda x: F.avg_pool2d(x, (9, 7), 3, (2, 1), True),
    "without the padding": lambda x: F.avg_pool2d(x, (9, 7), 3, (2, 1), True, False),
    "largest": lambda x: F.max_pool2d(x, 1000, ceil_mode=True),
    "all places": lambda x: F.max_pool2d(x, (7, 5)),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_a_window_beyond_both_ends_is_as_large_as_what_it_covers(name):
    x = torch.randn(2, 3, 7, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    model, want = anyjax.from_torch(WINDOWS[name]), WINDOWS[name](x)
    assert_close(model(x.detach()), want.detach(), reduction=35)
    want.square().sum().backward()
    gradient = jax.grad(lambda x: (model(x) ** 2).sum())(x.detach().numpy())
    assert_close(gradient, x.grad, reduction=35)
    text = jax.jit(lambda x: model(x)).lower(x.detach().numpy()).as_text()
    assert "1000" not in text
