"""Products that JAX never writes."""

import numpy as np

from tests.stablehlo.texts import assert_like_reference, called, function
from tests.tolerance import assert_close

A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.arange(12, dtype=np.float32).reshape(3, 4) - 5


def test_dot():
    kinds = "(tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>"
    text = function("2x3xf32 3x4xf32", "2x4xf32", f"%out = stablehlo.dot %0, %1 : {kinds}")
    assert_close(called(text, A, B), A @ B, reduction=3)


def test_einsum():
    body = '%out = stablehlo.einsum %0, %1, config = "ab,bc->ca" : '
    kinds = "(tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<4x2xf32>"
    assert_close(called(function("2x3xf32 3x4xf32", "4x2xf32", body + kinds), A, B), (A @ B).T)
    body = '%out = "stablehlo.unary_einsum"(%0) {einsum_config = "ab->a"} : '
    kinds = "(tensor<2x3xf32>) -> tensor<2xf32>"
    assert_close(called(function("2x3xf32", "2xf32", body + kinds), A), A.sum(1), reduction=3)


def test_integers_of_mixed_width():
    body = "%out = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0] : "
    kinds = "(tensor<2x3xi8>, tensor<3x4xi8>) -> tensor<2x4xi32>"
    text = function("2x3xi8 3x4xi8", "2x4xi32", body + kinds)
    assert_like_reference(text, (40 * A).astype(np.int8), (9 * B).astype(np.int8))
