"""Operations of CHLO that broadcast, which frameworks other than JAX write."""

import jax.numpy as jnp
import numpy as np
import pytest

from tests.stablehlo.texts import called, function
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=8)

X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
V = np.array([0.5, 1, 2], np.float32)
W = np.array([2, 3], np.float32)
ARITHMETIC = {
    "add": jnp.add, "subtract": jnp.subtract, "multiply": jnp.multiply, "divide": jnp.divide,
    "maximum": jnp.maximum, "minimum": jnp.minimum, "power": jnp.power, "atan2": jnp.arctan2,
    "remainder": jnp.fmod, "next_after": jnp.nextafter,
}  # fmt: skip


@pytest.mark.parametrize("name", ARITHMETIC)
def test_trailing_axes(name):
    operation = f"%out = chlo.broadcast_{name} %0, %1 : (tensor<2x3xf32>, tensor<3xf32>)"
    got = called(function("2x3xf32 3xf32", "2x3xf32", f"{operation} -> tensor<2x3xf32>"), X, V)
    assert_close(got, ARITHMETIC[name](X, V), reduction=4)


def test_given_axes():
    operation = '%out = "chlo.broadcast_add"(%0, %1) {broadcast_dimensions = array<i64: 0>}'
    kinds = "(tensor<2x3xf32>, tensor<2xf32>) -> tensor<2x3xf32>"
    got = called(function("2x3xf32 2xf32", "2x3xf32", f"{operation} : {kinds}"), X, W)
    assert_close(got, X + W[:, None])


def test_compare_and_select():
    body = """%p = chlo.broadcast_compare %0, %1 {comparison_direction =
        #chlo<comparison_direction GT>} : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xi1>
      %out = chlo.broadcast_select %p, %0, %1
        : (tensor<2x3xi1>, tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>"""
    assert_close(called(function("2x3xf32 3xf32", "2x3xf32", body), X, V * 3), np.maximum(X, V * 3))


def test_constants():
    body = """%c = "chlo.constant"() {value = dense<[1.0, 2.0, 3.0]> : tensor<3xf32>}
        : () -> tensor<3xf32>
      %l = "chlo.constant_like"(%0) {value = 2.5 : f32} : (tensor<3xf32>) -> tensor<3xf32>
      %s = stablehlo.add %c, %l : tensor<3xf32>
      %out = stablehlo.multiply %s, %0 : tensor<3xf32>"""
    assert_close(called(function("3xf32", "3xf32", body), V), (np.arange(1, 4) + 2.5) * V)


def test_ragged_dot():
    body = """%out = "chlo.ragged_dot"(%0, %1, %2) {ragged_dot_dimension_numbers = #chlo.ragged_dot<
        lhs_batching_dimensions = [], rhs_batching_dimensions = [],
        lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1],
        lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>}
      : (tensor<3x2xf32>, tensor<2x2x2xf32>, tensor<2xi32>) -> tensor<3x2xf32>"""
    left, right = X.T.copy(), np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    got = called(
        function("3x2xf32 2x2x2xf32 2xi32", "3x2xf32", body),
        left,
        right,
        np.array([1, 2], np.int32),
    )
    assert_close(got, np.concatenate([left[:1] @ right[0], left[1:] @ right[1]]), reduction=4)
