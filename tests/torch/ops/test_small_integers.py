"""Small integers beside a number that their dtype cannot hold: functions of floats see it whole."""

import numpy as np
import pytest
import torch

import anyjax
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=8)

NAMES = """div true_divide atan2 xlogy copysign ldexp special.xlog1py special.zeta
special.chebyshev_polynomial_t special.hermite_polynomial_h special.legendre_polynomial_p
add mul rsub fmod maximum eq lt where_ clamp_ rdiv ratan2 mean_ item_"""
OWN = {
    "where_": lambda x, y: torch.where(x > 1, x, y),
    "clamp_": torch.clamp,
    "rdiv": lambda x, y: y / x,
    "ratan2": lambda x, y: torch.atan2(torch.as_tensor(y), x),
    "mean_": lambda x, y: (x / y).mean(),
    "item_": lambda x, y: x[1] / y,
}
KINDS = {
    "number": lambda y: y,
    "0-d": torch.tensor,
    "1-d": lambda y: torch.tensor([y]),
    "0-d of int32": lambda y: torch.tensor(y, dtype=torch.int32),
}


def function(name):
    found = OWN.get(name, torch)
    for part in name.split(".") if name not in OWN else ():
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES.split())
def test_the_number_is_not_cut(name, kind):
    compute, seen = function(name), 0
    for dtype, value in (("uint8", 256), ("uint8", -2), ("int8", 300), ("int16", 40000)):
        x, y = np.array([1, 5, 64, 100], dtype), KINDS[kind](value)
        try:
            want = compute(torch.from_numpy(x), y)
        except (TypeError, RuntimeError):  # torch refuses it: no number, or one that does not fit
            continue
        assert_close(anyjax.from_torch(lambda x, y=y: compute(x, y))(x), want.numpy(), reduction=4)
        seen += 1
    assert seen or kind == "number"


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32"])
def test_powers_wrap_as_in_c(dtype):
    """``jnp.power`` reads six bits of the exponents."""
    x = np.array([0, 1, 2, 3, 5, 100], dtype)
    y = np.array([0, 1, 64, 65, 100, 127], dtype)
    got = anyjax.from_torch(torch.pow)(x[:, None], y)
    want = (torch.from_numpy(x)[:, None] ** torch.from_numpy(y)).numpy()
    np.testing.assert_array_equal(got, want.astype(got.dtype))


SQUARES = {
    "product": lambda x: (x * x).abs(),
    "square": lambda x: x.square().abs(),
    "power": lambda x: (x**2).abs(),
    "fourth power": lambda x: x**4 >= 0,
    "sign": lambda x: (x * x).sign(),
}


@pytest.mark.parametrize("name", SQUARES)
@pytest.mark.parametrize("dtype", [np.int8, np.int16])
def test_squares_that_wrap_are_no_positive_numbers(name, dtype):
    x = np.array([12, 7, -128, 200, -181], np.int64).astype(dtype)
    expected = SQUARES[name](torch.from_numpy(x)).numpy()
    np.testing.assert_array_equal(anyjax.from_torch(SQUARES[name])(x), expected)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16])
def test_small_integers_are_ids_of_any_table(dtype):
    table = torch.nn.Embedding(512, 2)
    out = anyjax.from_torch(table)(np.array([1, 5], dtype))
    np.testing.assert_array_equal(out, table(torch.tensor([1, 5])).detach())
