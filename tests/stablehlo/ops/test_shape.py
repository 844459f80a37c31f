"""Tuples and pads."""

import numpy as np

from tests.stablehlo.texts import assert_like_reference, called, function

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_pad_inside_and_away():
    body = """%v = stablehlo.constant dense<9.0> : tensor<f32>
      %out = stablehlo.pad %0, %v, low = [1, -1], high = [0, 2], interior = [1, 0]
      : (tensor<2x3xf32>, tensor<f32>) -> tensor<4x4xf32>"""
    assert_like_reference(function("2x3xf32", "4x4xf32", body), X)


def test_tuples():
    kind = "tuple<tensor<2xf32>, tensor<2xf32>>"
    text = f"""module {{ func.func @main(%a: {kind}) -> {kind} {{
      %0 = stablehlo.get_tuple_element %a[0] : ({kind}) -> tensor<2xf32>
      %1 = stablehlo.get_tuple_element %a[1] : ({kind}) -> tensor<2xf32>
      %2 = stablehlo.tuple %1, %0 : {kind}
      return %2 : {kind} }} }}"""
    first, second = called(text, (X[0, :2], X[1, :2]))
    np.testing.assert_array_equal(first, X[1, :2])
    np.testing.assert_array_equal(second, X[0, :2])


def test_tokens():
    body = """%t = stablehlo.create_token : !stablehlo.token
      %u = stablehlo.after_all %t, %t : !stablehlo.token
      %out = stablehlo.negate %0 : tensor<2x3xf32>"""
    np.testing.assert_array_equal(called(function("2x3xf32", "2x3xf32", body), X), -X)
