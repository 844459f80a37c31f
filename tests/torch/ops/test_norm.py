"""The further results of normalisations: values and gradients."""

import numpy as np
import pytest
import torch

from tests.torch.beside_torch import assert_same_gradients, assert_same_values

pytestmark = pytest.mark.sample(every=8)

RNG = np.random.default_rng(0)
X, WEIGHT, BIAS = (RNG.standard_normal(s).astype(np.float32) for s in ((2, 4, 6), 4, 4))
LAST = X.transpose(0, 2, 1).copy()
NORMS = {
    "layer": (lambda x, w, b: torch.native_layer_norm(x, (4,), w, b, 1e-5), LAST),
    "group": (lambda x, w, b: torch.native_group_norm(x, w, b, 2, 4, 6, 2, 1e-5), X),
    "batch": (
        lambda x, w, b: torch.ops.aten._native_batch_norm_legit.no_stats(x, w, b, True, 0.1, 1e-5),
        X,
    ),
}


@pytest.mark.parametrize("name", NORMS)
def test_mean_and_deviation(name):
    """Those of groups have a gradient in torch, those of layers and batches none."""
    function, x = NORMS[name]
    assert_same_values(function, x, WEIGHT, BIAS, reduction=64)
    assert_same_gradients(function, x, WEIGHT, BIAS, reduction=512)


@pytest.mark.parametrize("shape", [(1, 4, 1), (4, 1)])
def test_weights_with_dimensions_of_one_element(shape):
    function = lambda x, w, b: torch.nn.functional.batch_norm(x, None, None, w, b, training=True)
    assert_same_values(function, X, WEIGHT.reshape(shape), BIAS.reshape(shape), reduction=64)
