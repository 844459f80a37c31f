"""Windows with functions that JAX has no primitive for."""

import jax
import numpy as np
import pytest

from tests.stablehlo.texts import assert_like_reference, function
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=8)

X = np.random.default_rng(0).permutation(30).reshape(5, 6).astype(np.float32) / 8


def text(operation, size="2, 3", shape="4x4", padding="", kind="f32", init="1.0"):
    return function(
        f"5x6x{kind}",
        f"{shape}x{kind}",
        f"""%init = stablehlo.constant dense<{init}> : tensor<{kind}>
        %out = "stablehlo.reduce_window"(%0, %init) ({{
          ^bb0(%a: tensor<{kind}>, %b: tensor<{kind}>):
          %r = {operation} : tensor<{kind}>
          stablehlo.return %r : tensor<{kind}> }})
        {{window_dimensions = array<i64: {size}>{padding}}} :
        (tensor<5x6x{kind}>, tensor<{kind}>) -> tensor<{shape}x{kind}>""",
    )


@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "minimum"])
def test_monoids_from_another_value(name):
    model = assert_like_reference(text(f"stablehlo.{name} %a, %b"), X, reduction=8)
    jax.grad(lambda x: model.apply({}, x).sum())(X)


def test_running_products():
    padding = ", padding = dense<[[4, 0], [0, 0]]> : tensor<2x2xi64>"
    model = assert_like_reference(
        text("stablehlo.multiply %a, %b", "5, 1", "5x6", padding), X, reduction=8
    )
    want = jax.grad(lambda x: jax.numpy.cumprod(x, 0).sum())(X)
    assert_close(jax.grad(lambda x: model.apply({}, x).sum())(X), want, reduction=64)


def test_own_function_has_a_gradient():
    """The sum in another order of operands: by JAX's own for the same windows."""
    body = "stablehlo.add %b, %n"
    module = text(body, init="0.0").replace("%r =", "%n = stablehlo.abs %a : tensor<f32>\n%r =")
    model = assert_like_reference(module, np.abs(X), reduction=8)
    sums = lambda x: jax.lax.reduce_window(x, 0.0, jax.lax.add, (2, 3), (1, 1), "VALID")
    got, want = (
        jax.grad(lambda x, f=f: (f(x) ** 2).sum())(np.abs(X) + 1)
        for f in (lambda x: model.apply({}, x), sums)
    )
    assert_close(got, want, reduction=64)


def test_logical():
    assert_like_reference(text("stablehlo.add %a, %b", kind="i1", init="false"), X > 2)
    assert_like_reference(
        text("stablehlo.maximum %a, %b", kind="i32", init="3"), X.astype(np.int32)
    )


@pytest.mark.parametrize("direction", ["GE", "GT", "LE", "LT"])
@pytest.mark.parametrize("operation", ["add", "multiply"])
def test_select_and_scatter(direction, operation):
    module = function(
        "4x6xf32 2x2xf32",
        "4x6xf32",
        f"""%init = stablehlo.constant dense<{float(operation == "multiply")}> : tensor<f32>
        %out = "stablehlo.select_and_scatter"(%0, %1, %init) ({{
          ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %p = stablehlo.compare {direction}, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
          stablehlo.return %p : tensor<i1> }}, {{ ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %r = stablehlo.{operation} %a, %b : tensor<f32>
          stablehlo.return %r : tensor<f32> }})
        {{window_dimensions = array<i64: 3, 3>, window_strides = array<i64: 2, 3>,
          padding = dense<[[0, 1], [0, 0]]> : tensor<2x2xi64>}} :
        (tensor<4x6xf32>, tensor<2x2xf32>, tensor<f32>) -> tensor<4x6xf32>""",
    )
    assert_like_reference(
        module, np.round(X[:4]), np.arange(1, 5, dtype=np.float32).reshape(2, 2), reduction=8
    )
