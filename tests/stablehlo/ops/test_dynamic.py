"""Sizes that are operands."""

import jax
import numpy as np
import pytest

from anyjax.errors import DataDependent, Unsupported
from tests.stablehlo.texts import called, function

X = np.arange(6, dtype=np.float32)


def test_known_sizes():
    body = """%s = stablehlo.constant dense<[2, 3]> : tensor<2xi32>
      %out = stablehlo.dynamic_reshape %0, %s : (tensor<6xf32>, tensor<2xi32>) -> tensor<2x3xf32>"""
    np.testing.assert_array_equal(called(function("6xf32", "2x3xf32", body), X), X.reshape(2, 3))


def test_slice():
    body = """%a = stablehlo.constant dense<1> : tensor<1xi32>
      %b = stablehlo.constant dense<6> : tensor<1xi32>
      %c = stablehlo.constant dense<2> : tensor<1xi32>
      %out = stablehlo.real_dynamic_slice %0, %a, %b, %c
        : (tensor<6xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>"""
    np.testing.assert_array_equal(called(function("6xf32", "?xf32", body), X), X[1:6:2])


def test_moving_slice():
    """Its start is computed, its size is known."""
    body = """%n = stablehlo.constant dense<3> : tensor<1xi32>
      %one = stablehlo.constant dense<1> : tensor<1xi32>
      %end = stablehlo.add %1, %n : tensor<1xi32>
      %out = stablehlo.real_dynamic_slice %0, %1, %end, %one
        : (tensor<6xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>"""
    got = called(function("6xf32 1xi32", "?xf32", body), X, np.array([2], np.int32))
    np.testing.assert_array_equal(got, X[2:5])


def test_unknown_size():
    body = (
        "%out = stablehlo.dynamic_reshape %0, %1 : (tensor<6xf32>, tensor<1xi32>) -> tensor<?xf32>"
    )
    with pytest.raises(DataDependent, match="dynamic_reshape has to be known"):
        jax.jit(lambda n: called(function("6xf32 1xi32", "?xf32", body), X, n))(
            np.array([6], np.int32)
        )


def test_other_size():
    body = """%n = stablehlo.constant dense<3> : tensor<i32>
      %out = stablehlo.set_dimension_size %0, %n, dim = 0
        : (tensor<6xf32>, tensor<i32>) -> tensor<?xf32>"""
    with pytest.raises(Unsupported, match="to another size"):
        called(function("6xf32", "?xf32", body), X)
