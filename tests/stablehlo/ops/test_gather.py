"""Gathers with the index axis elsewhere, and torch's selection."""

import numpy as np

from tests.stablehlo.texts import assert_like_reference, called, function

X = np.arange(20, dtype=np.float32).reshape(4, 5)
I = np.array([[0, 9], [3, -2], [1, 1]], np.int32)  # some beyond the ends


def gather(axis, kind):
    return function(
        f"4x5xf32 {kind}xi32",
        "3x2xf32",
        f"""%out = "stablehlo.gather"(%0, %1) {{dimension_numbers = #stablehlo.gather<
          offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0, 1],
          index_vector_dim = {axis}>, slice_sizes = array<i64: 1, 2>}} :
        (tensor<4x5xf32>, tensor<{kind}xi32>) -> tensor<3x2xf32>""",
    )


def test_index_axis():
    assert_like_reference(gather(1, "3x2"), X, I)
    assert_like_reference(gather(0, "2x3"), X, I.T.copy())


def test_torch_index_select():
    body = """%out = "stablehlo.torch_index_select"(%0, %1) {dim = 1 : i64, batch_dims = 0 : i64}
      : (tensor<4x5xf32>, tensor<3xi32>) -> tensor<4x3xf32>"""
    index = np.array([4, 0, 2], np.int32)
    got = called(function("4x5xf32 3xi32", "4x3xf32", body), X, index)
    np.testing.assert_array_equal(got, X[:, index])
