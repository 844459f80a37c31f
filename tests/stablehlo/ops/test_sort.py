"""Orders that JAX never writes."""

import numpy as np
import pytest

from tests.stablehlo.texts import assert_like_reference, called, function

pytestmark = pytest.mark.sample(every=8)

KEY = np.array([3, 1, 2, 1, 3, 0, 2], np.float32)
VALUE = np.arange(7, dtype=np.int32)
ODD = np.array([np.nan, -0.0, 0.0, np.inf, -np.inf, 1, -np.nan], np.float32)


def text(compare):
    return function(
        "7xf32 7xi32",
        "7xf32 7xi32",
        f"""%out:2 = "stablehlo.sort"(%0, %1) ({{
          ^bb0(%a: tensor<f32>, %b: tensor<f32>, %i: tensor<i32>, %j: tensor<i32>):
          {compare}
          stablehlo.return %p : tensor<i1> }}) {{dimension = 0 : i64, is_stable = true}} :
        (tensor<7xf32>, tensor<7xi32>) -> (tensor<7xf32>, tensor<7xi32>)""",
    )


def by(direction, one="%a", other="%b", kind="f32", how="", name="%p"):
    both = f"(tensor<{kind}>, tensor<{kind}>) -> tensor<i1>"
    return f"{name} = stablehlo.compare {direction}, {one}, {other}{how} : {both}\n"


ORDERS = {
    "up": by("LT"),
    "down": by("GT"),
    "second": by("GT", "%i", "%j", "i32"),
    "total": by("LT", how=", TOTALORDER"),
    "total_down": by("GT", how=", TOTALORDER"),
    "up_then_down": by("LT", name="%l") + by("EQ", name="%e")
    + by("GT", "%i", "%j", "i32", name="%g")
    + "%t = stablehlo.and %e, %g : tensor<i1>\n%p = stablehlo.or %l, %t : tensor<i1>",
    "magnitude": "%x = stablehlo.abs %a : tensor<f32>\n%y = stablehlo.abs %b : tensor<f32>\n"
    + by("GT", "%x", "%y"),
}  # fmt: skip


@pytest.mark.parametrize("order", ORDERS)
def test_orders(order):
    assert_like_reference(text(ORDERS[order]), KEY - 2 if order == "magnitude" else KEY, VALUE)


def test_total_order():
    """The reference interpreter takes -0 and 0 for equal; the specification and XLA do not."""
    up = called(text(ORDERS["total"]), ODD, VALUE)[1]
    assert up.tolist() == [6, 4, 1, 2, 5, 3, 0]
    down = called(text(ORDERS["total_down"]), ODD, VALUE)[1]
    assert down.tolist() == up.tolist()[::-1]


def test_floats():
    """Compared as numbers: equal zeros stay as they are."""
    odd = np.array([0.0, -0.0, 2, -0.0, 0.0, -1, 3], np.float32)
    assert_like_reference(text(ORDERS["down"]), odd, VALUE)
    assert_like_reference(text(ORDERS["up"]), odd, VALUE)
