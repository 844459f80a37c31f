"""Scatters that JAX has no primitive for."""

import jax
import numpy as np
import pytest
from jax import lax

from tests.stablehlo.agree import assert_agrees
from tests.stablehlo.texts import assert_like_reference, function

pytestmark = pytest.mark.sample(every=8)

X = np.arange(1, 7, dtype=np.float32)
NUMBERS = """#stablehlo.scatter<update_window_dims = [], inserted_window_dims = [0],
  scatter_dims_to_operand_dims = [0], index_vector_dim = 1>"""


def text(body, unique=False):
    return function(
        "6xf32 4x1xi32 4xf32",
        "6xf32",
        f"""%out = "stablehlo.scatter"(%0, %1, %2) ({{ ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          {body}
          stablehlo.return %r : tensor<f32> }})
        {{scatter_dimension_numbers = {NUMBERS}, unique_indices = {str(unique).lower()}}} :
        (tensor<6xf32>, tensor<4x1xi32>, tensor<4xf32>) -> tensor<6xf32>""",
    )


REPEATED = np.array([[1], [4], [1], [9]], np.int32)  # one twice, one beyond the end
U = np.array([2, 3, 5, 7], np.float32)


@pytest.mark.parametrize("operation", ["subtract", "divide", "power", "add", "maximum"])
def test_repeated_places(operation):
    model = assert_like_reference(
        text(f"%r = stablehlo.{operation} %a, %b : tensor<f32>"), X, REPEATED, U
    )
    jax.grad(lambda x: model.apply({}, x, REPEATED, U).sum())(X)


def test_order_of_operands():
    """x - u is JAX's, u - x is not."""
    assert_like_reference(text("%r = stablehlo.subtract %b, %a : tensor<f32>"), X, REPEATED, U)


def test_unique_places():
    unique = np.array([[1], [4], [0], [9]], np.int32)
    assert_like_reference(
        text("%r = stablehlo.divide %b, %a : tensor<f32>", unique=True), X, unique, U
    )


def test_several_inputs():
    """The larger key takes its value along."""
    pair = "tensor<6xf32>, tensor<6xf32>"
    module = function(
        "6xf32 6xf32 4x1xi32 4xf32 4xf32",
        "6xf32 6xf32",
        f"""%out:2 = "stablehlo.scatter"(%0, %1, %2, %3, %4) ({{
          ^bb0(%a: tensor<f32>, %c: tensor<f32>, %b: tensor<f32>, %d: tensor<f32>):
          %p = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
          %k = stablehlo.select %p, %a, %b : tensor<i1>, tensor<f32>
          %v = stablehlo.select %p, %c, %d : tensor<i1>, tensor<f32>
          stablehlo.return %k, %v : tensor<f32>, tensor<f32> }})
        {{scatter_dimension_numbers = {NUMBERS}}} :
        ({pair}, tensor<4x1xi32>, tensor<4xf32>, tensor<4xf32>) -> ({pair})""",
    )
    assert_like_reference(module, X, -X, REPEATED, U, -U)


def test_windows():
    def place(x, u):
        numbers = lax.ScatterDimensionNumbers((1, 2), (), (0, 1))
        at, shape = np.array([[0, 1], [2, 0]]), (2, 2, 2)
        return (
            lax.scatter_apply(x, at, lax.square, numbers, update_shape=shape, unique_indices=True)
            + u
        )

    assert_agrees(
        place,
        np.arange(16, dtype=np.float32).reshape(4, 4),
        np.ones((4, 4), np.float32),
        grad=False,
    )
