"""Operations element by element, in dtypes that JAX's functions seldom have."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from tests.stablehlo.agree import assert_agrees
from tests.stablehlo.texts import assert_like_reference, function

pytestmark = pytest.mark.sample(every=8)

X = np.array([[-2.0, -0.5, 0.3], [0.25, 1.0, 3.0]], np.float32)


@pytest.mark.parametrize("function", [jnp.sin, jax.nn.softmax])
def test_unary(function):
    assert_agrees(function, X)


ARITHMETIC = ["add", "multiply", "maximum", "minimum", "and", "or", "xor"]
ODD = np.array([5, -3, 7, 0], np.int32)


@pytest.mark.parametrize("name", ARITHMETIC)
@pytest.mark.parametrize("kind", ["i1", "i8", "ui32"])
def test_integers(name, kind):
    dtype = {"i1": bool, "i8": np.int8, "ui32": np.uint32}[kind]
    text = function(
        f"4x{kind} 4x{kind}", f"4x{kind}", f"%out = stablehlo.{name} %0, %1 : tensor<4x{kind}>"
    )
    assert_like_reference(text, ODD.astype(dtype), ODD[::-1].astype(dtype))


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32"])
def test_rounding(kind):
    dtype = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}[kind]
    x = np.array([-2.5, -0.5, 0.5, 1.5, 2.4], dtype)
    for name in ("round_nearest_afz", "round_nearest_even", "sign", "cbrt", "is_finite"):
        result = "5xi1" if name == "is_finite" else f"5x{kind}"
        kinds = f"(tensor<5x{kind}>) -> tensor<{result}>"
        assert_like_reference(
            function(f"5x{kind}", result, f"%out = stablehlo.{name} %0 : {kinds}"), x, reduction=4
        )


def test_division_and_shifts():
    x, y = np.array([7, -7, 7, -7], np.int32), np.array([2, 2, -2, -2], np.int32)
    for name in ("divide", "remainder", "power", "shift_left", "shift_right_arithmetic"):
        operand = np.abs(y) if name[0] in "ps" else y
        text = function("4xi32 4xi32", "4xi32", f"%out = stablehlo.{name} %0, %1 : tensor<4xi32>")
        assert_like_reference(text, x, operand)


def test_total_order():
    x = np.array([-0.0, 0.0, np.inf, 1.0], np.float32)
    kinds = "(tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>"
    body = f"%out = stablehlo.compare LT, %0, %1, TOTALORDER : {kinds}"
    assert_like_reference(function("4xf32 4xf32", "4xi1", body), x, x[::-1].copy())


def test_map():
    body = """%out = "stablehlo.map"(%0, %1) ({ ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.subtract %a, %b : tensor<f32>
        stablehlo.return %s : tensor<f32> }) {dimensions = array<i64: 0, 1>}
      : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>"""
    assert_like_reference(function("2x3xf32 2x3xf32", "2x3xf32", body), X, X * 2)


def test_products_with_infinity():
    """One that is not taken leaves the others' gradient alone."""
    assert_agrees(lambda x: jax.lax.erf_inv(x / 4), X)
