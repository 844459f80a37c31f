import numpy as np
import torch

import tojax
from tests.tolerance import assert_close


def test_samples_of_a_fractional_pool_may_be_negative_or_of_a_larger_batch():
    x = np.random.default_rng(0).normal(size=(2, 16, 16)).astype(np.float32)
    samples = torch.tensor([[[-0.7, 4.9], [0.2, -0.1]], [[0.5, 0.5], [0.5, 0.5]]])
    function = lambda x: torch.nn.functional.fractional_max_pool2d(
        x, 1, output_size=8, _random_samples=samples, return_indices=True
    )
    assert_close(tojax.from_torch(function)(x), function(torch.from_numpy(x)))
