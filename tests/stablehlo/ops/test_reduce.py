"""Reductions by functions that JAX has no primitive for."""

import jax
import numpy as np
import pytest

from tests.stablehlo.texts import assert_like_reference, function
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=8)

X = np.random.default_rng(0).standard_normal((3, 7)).astype(np.float32)


def text(name, kind, init):
    return function(
        f"3x7x{kind}",
        f"3x{kind}",
        f"""%init = stablehlo.constant dense<{init}> : tensor<{kind}>
        %out = stablehlo.reduce(%0 init: %init) applies stablehlo.{name} across dimensions = [1]
          : (tensor<3x7x{kind}>, tensor<{kind}>) -> tensor<3x{kind}>""",
    )


CASES = [
    ("add", "f32", "2.0"), ("maximum", "f32", "0.5"), ("multiply", "f32", "1.0"),
    ("maximum", "i32", "1"), ("and", "i32", "7"), ("or", "i32", "0"), ("xor", "i32", "0"),
    ("add", "i1", "false"), ("multiply", "i1", "true"), ("minimum", "i1", "true"),
    ("maximum", "i1", "false"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind", "init"), CASES)
def test_monoids(name, kind, init):
    x = {"f32": X, "i32": (4 * X).astype(np.int32), "i1": X > 0}[kind]
    assert_like_reference(text(name, kind, init), x, reduction=8)


def test_pairs_have_gradients():
    """The place and value of the largest: the gradient goes there."""
    module = function(
        "3x7xf32",
        "3xf32 3xi32",
        """%low = stablehlo.constant dense<0xFF800000> : tensor<f32>
        %zero = stablehlo.constant dense<0> : tensor<i32>
        %at = stablehlo.iota dim = 1 : tensor<3x7xi32>
        %out:2 = stablehlo.reduce(%0 init: %low), (%at init: %zero) across dimensions = [1]
          : (tensor<3x7xf32>, tensor<3x7xi32>, tensor<f32>, tensor<i32>)
          -> (tensor<3xf32>, tensor<3xi32>)
        reducer(%a: tensor<f32>, %b: tensor<f32>) (%i: tensor<i32>, %j: tensor<i32>) {
          %p = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
          %v = stablehlo.select %p, %a, %b : tensor<i1>, tensor<f32>
          %k = stablehlo.select %p, %i, %j : tensor<i1>, tensor<i32>
          stablehlo.return %v, %k : tensor<f32>, tensor<i32> }""",
    )
    model = assert_like_reference(module, X)
    got = jax.grad(lambda x: (model.apply({}, x)[0] ** 2).sum())(X)
    assert_close(got, jax.grad(lambda x: (x.max(1) ** 2).sum())(X))
