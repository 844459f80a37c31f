"""Constant folding: known values stay known while tracing."""

import jax
import numpy as np
from jax import export

from anyjax.stablehlo.engine.folding import FOLDS
from tests.stablehlo.texts import called, function


def test_integers_as_xla_divides():
    x, y = np.array([7, -7, 7, -7]), np.array([2, 2, -2, -2])
    assert FOLDS["divide"](x, y).tolist() == [3, -3, -3, 3]
    assert FOLDS["remainder"](x, y).tolist() == [1, -1, 1, -1]


def test_symbolic_sizes():
    (b,) = export.symbolic_shape("b")

    def sizes(x):
        size, three = np.array(x.shape[0], object), np.array(3)
        assert FOLDS["divide"](size, three)[()] == x.shape[0] // 3
        assert FOLDS["divide"](three, size)[()] == 3 // x.shape[0]
        assert FOLDS["maximum"](np.asarray(size - 3, object), np.array(0))[()] >= 0
        return x

    export.export(jax.jit(sizes))(jax.ShapeDtypeStruct((b,), np.float32))


def test_a_computed_shape():
    body = """%a = stablehlo.constant dense<[6, 2]> : tensor<2xi32>
      %b = stablehlo.constant dense<[2, 1]> : tensor<2xi32>
      %c = stablehlo.divide %a, %b : tensor<2xi32>
      %out = stablehlo.dynamic_reshape %0, %c : (tensor<6xf32>, tensor<2xi32>) -> tensor<3x2xf32>"""
    run = jax.jit(lambda x: called(function("6xf32", "3x2xf32", body), x))
    assert run(np.ones(6, np.float32)).shape == (3, 2)
