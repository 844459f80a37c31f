"""A kernel that is read backwards, which JAX flips beforehand."""

import numpy as np

from tests.stablehlo.texts import assert_like_reference, function


def test_reversal():
    body = """%out = "stablehlo.convolution"(%0, %1) {dimension_numbers = #stablehlo.conv<
        [b, f, 0]x[o, i, 0]->[b, f, 0]>, feature_group_count = 1 : i64, batch_group_count = 1 : i64,
        padding = dense<[[1, 0]]> : tensor<1x2xi64>, window_reversal = array<i1: true>}
      : (tensor<1x2x5xf32>, tensor<3x2x2xf32>) -> tensor<1x3x5xf32>"""
    rng = np.random.default_rng(0)
    x, k = (rng.standard_normal(s).astype(np.float32) for s in ((1, 2, 5), (3, 2, 2)))
    assert_like_reference(function("1x2x5xf32 3x2x2xf32", "1x3x5xf32", body), x, k, reduction=4)
