"""Numbers beside integers and bools, which torch cuts where it does not promote."""

import jax
import numpy as np
import pytest
import torch

import anyjax
from tests.sampling import further
from tests.tolerance import assert_close
from tests.torch.beside_torch import (
    EDGES,
    FAR,
    INFINITE,
    NAN,
    assert_same_gradients,
    assert_same_values,
)

pytestmark = pytest.mark.sample(every=8)

CASES = {
    "addcmul": lambda t: torch.addcmul(t, t, t, value=1.7),
    "addcmul, below zero": lambda t: torch.addcmul(t, t, t, value=-1.7),
    "addcmul, none of it": lambda t: t.clone().addcmul_(t, t, value=0.25),
    "addcmul of floats": lambda t: torch.addcmul(t, t.float(), t, value=0.25),
    "threshold": lambda t: torch.nn.functional.threshold(t, 2.5, 0.7),
    "threshold, below zero": lambda t: torch.nn.functional.threshold(t, -0.5, -1.7),
    "index_fill": lambda t: t.index_fill(0, torch.tensor([0, 2]), 1.7),
    "fill_": lambda t: t.clone().fill_(-1.7),
    "add of bools": lambda t: torch.add(t > 0, t > 3, alpha=-2),
    "add of a bool": lambda t: torch.add(t, t > 3, alpha=-2),
}


@pytest.mark.filterwarnings("ignore::anyjax.errors.UncheckedValues")  # products, under jit
@pytest.mark.parametrize("name", CASES)
def test_numbers_beside_integers(name):
    x = np.array([1, 5, 3, -2, 0, 4])
    want = CASES[name](torch.from_numpy(x))
    got = jax.jit(anyjax.from_torch(CASES[name]).apply)({}, x)
    assert got.dtype.kind == want.numpy().dtype.kind
    assert_close(got, want.numpy(), reduction=4)


ENDS = np.concatenate([EDGES, FAR, INFINITE, NAN])
KINKS = "sgn sign abs floor ceil round trunc frac isnan isinf isfinite signbit nan_to_num relu neg"


@pytest.mark.parametrize("name", KINKS.split())
def test_one_operand_at_the_edges(name):
    assert_same_values(getattr(torch, name), ENDS)


BINARY = """heaviside fmod remainder atan2 copysign nextafter maximum minimum fmax fmin eq lt
isclose floor_divide div pow hypot"""


@pytest.mark.parametrize("name", BINARY.split())
def test_two_operands_at_the_edges(name):
    ends = np.array([0, -0.0, 1, -2, np.inf, -np.inf, np.nan], np.float32)
    x, y = (v.ravel() for v in np.meshgrid(ends, ends))
    assert_same_values(getattr(torch, name), x, y, reduction=4)


ZERO = np.array([0, -0.0, 0, 1, -1, 2, 0], np.float32)


@pytest.mark.parametrize("name", ["atan2", "pow", "maximum", "fmin", "mul"])
def test_gradients_at_zero(name):
    if name == "pow":  # 0 to the power of 0, but nothing that has no value
        x, y = np.array([0, 0, 0, 2, 3], np.float32), np.array([0, 1, 2, 0, -1.5], np.float32)
    else:
        x, y = (v.ravel() for v in np.meshgrid(ZERO, ZERO))
    assert_same_gradients(getattr(torch, name), x, y, reduction=4)


FLOATS = [0.5, -0.5, 1.9, -1.9, 127.5, 128, 255.9, 256, 300, -1, -128, -129, -300, 32768, 40000]
FLOATS += [65536.5, 70000, -40000, 2130706432, -2147483648, np.nan]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32"])
@pytest.mark.parametrize("source", ["float32", *further("float16", "bfloat16")])
def test_floats_as_integers(dtype, source):
    """They wrap at 8 and 16 bits; C leaves the rest open, which is the nearest of 32 bits here."""
    to, given = getattr(torch, dtype), getattr(torch, source)
    inside = [x for x in FLOATS if abs(x) < (6e4 if source == "float16" else 1e11)]
    x = np.array(inside + ([] if dtype == "int32" else [np.nan]), np.float32)
    assert_same_values(lambda x: x.to(given).to(to), x)
    assert_same_values(lambda x: torch.zeros(len(x), dtype=to).copy_(x.to(given)), x)
    beyond = np.array([3e9, 1e20, np.inf, -3e9, -np.inf], np.float32)
    got = anyjax.from_torch(lambda x: x.to(to))(beyond)
    limits = np.iinfo(np.int32)
    assert_close(got, np.array([limits.max] * 3 + [limits.min] * 2).astype(dtype))


DIVISIONS = {
    "//": lambda x, y: x // y,
    "%": lambda x, y: x % y,
    "fmod": torch.fmod,
    "div, floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "div, trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
}
SOME, NONE = np.array([7, -7, 5, -5], np.int32), np.array([2, 0, -2, 3], np.int32)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "int64"])
@pytest.mark.parametrize("name", DIVISIONS)
def test_integers_divided(name, dtype):
    cast = lambda x: x.to(getattr(torch, dtype))
    divide = lambda x, y: DIVISIONS[name](cast(x), cast(y)) * 1.0
    by = np.where(NONE == 0, 3, NONE).astype(np.int32)
    by = abs(by) if dtype == "uint8" else by
    assert_same_values(divide, SOME, by)


@pytest.mark.parametrize("name", DIVISIONS)
def test_integers_divided_by_zero(name):
    """torch raises. So does this, where values are known; programs give NaN for floats."""
    divide = lambda x, y: DIVISIONS[name](x, y) * 1.0
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        divide(torch.from_numpy(SOME), torch.from_numpy(NONE))
    model = anyjax.from_torch(divide)
    with pytest.raises(anyjax.errors.ForwardFailed, match="divided by 0"):
        model.apply({}, SOME, NONE)
    with pytest.raises(anyjax.errors.ForwardFailed):
        model(SOME, NONE)
    assert np.isnan(jax.jit(model.apply)({}, SOME, NONE)).all()
    known = anyjax.from_torch(lambda x: DIVISIONS[name](x, 0))
    with pytest.raises(anyjax.errors.ForwardFailed, match="divided by 0"):
        known(SOME)
    of_constant = anyjax.from_torch(lambda x: DIVISIONS[name](x, torch.tensor([1, 0, 1, 2])))
    with pytest.raises(anyjax.errors.ForwardFailed, match="divided by 0"):
        of_constant(SOME)
    floats = SOME.astype(np.float32), NONE.astype(np.float32)
    assert_same_values(DIVISIONS[name], *floats)


def test_integers_to_negative_powers():
    """Which are small, whatever their floats are: 0 ** -3 is 0."""
    x, y = (v.ravel() for v in np.meshgrid(np.array([0, 1, -1, 2, 5]), np.array([-3, -2, 0, 1, 3])))
    assert_same_values(lambda x, y: torch.pow(x, y).float(), x, y)
    assert_same_values(lambda y: (0**y).float(), y)
    assert_same_values(lambda x: (x > 0) ** torch.tensor(-1), x)


NUMBERS = (True, False, 2, 0.5)
BESIDE = {
    "+": lambda t, n: t + n,
    "*": lambda t, n: t * n,
    "/": lambda t, n: t / n if n else t,
    "**": lambda t, n: t**n,
    "==": lambda t, n: t == n,
    "&": lambda t, n: t & (n == 2),
    "where": lambda t, n: torch.where(t > 0, t, n),
    "masked_fill": lambda t, n: t.masked_fill(t > 0, n),
    "full_like": lambda t, n: torch.full_like(t, n),
    "maximum": lambda t, n: torch.maximum(t, torch.tensor(n)),
    "float_power": lambda t, n: torch.float_power(t, n).float(),
}


@pytest.mark.parametrize("name", BESIDE)
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "float32"])
def test_dtypes_beside_numbers(name, dtype):
    """A bool is no integer: with bools it stays one."""
    if (name, dtype) == ("&", "float32"):
        return
    x = np.array([0, 1, 1]).astype(dtype)
    for n in NUMBERS:
        want = BESIDE[name](torch.from_numpy(x), n).numpy()
        got = anyjax.from_torch(lambda t, n=n: BESIDE[name](t, n))(x)
        assert got.dtype == jax.dtypes.canonicalize_dtype(want.dtype), n
        np.testing.assert_allclose(got, want)


COMPLEX = np.array([0, 1, 2, 0.5, 1.5, 3, 1 + 2j, 2j, 2 - 1j, 0.5 + 1j, -1, -2 + 1j], np.complex64)


def parts(function):
    """The same of real and imaginary parts."""
    return lambda *xs: torch.view_as_real(
        function(*(torch.complex(*pair) for pair in zip(xs[::2], xs[1::2])))
    )


def test_powers_of_complex_zero():
    """The real part decides between 0, infinity and NaN; a number of 0 gives 1."""
    zero = np.zeros_like(COMPLEX)
    assert_same_values(torch.pow, zero, COMPLEX)
    assert_same_values(lambda z, y: z**y.real, zero, COMPLEX)
    assert_same_values(lambda z, y: z.real**y, zero, COMPLEX)
    assert_same_values(lambda y: 0**y, COMPLEX)
    for y in (0, 1, 2, 0.5, 1.5, 0j, 1 + 0j, 2 + 0j, 1 + 2j, 2j, -1 + 1j):
        assert_same_values(
            lambda z, y=y: z**y, np.array([0, 1 + 2j, -1], np.complex64), reduction=4
        )


def test_gradients_of_powers_of_complex_zero():
    """Where they are finite or NaN; infinite ones have no direction."""
    for y in (*COMPLEX[[0, 1, 2, 5, 6, 8]], 4 - 2j):
        pairs = [np.float32([part]) for part in (0, 0, y.real, y.imag)]
        assert_same_gradients(parts(torch.pow), *pairs, reduction=4)
    for y in (0, 1, 2, 3, 0j, 1 + 0j, 2 + 0j, 2 + 1j):
        zero = np.zeros(3, np.float32)
        assert_same_gradients(
            parts(lambda z, y=y: z**y), zero, np.array([0, 1, -1], "f4"), reduction=4
        )
    assert_same_gradients(parts(lambda y: 0**y), np.array([1, 2, 3], "f4"), zero, reduction=4)


CORNERS = {
    "hypot": torch.hypot,
    "hypot of itself": lambda x, y: torch.hypot(x, x) + y,
    "abs": lambda x, y: torch.complex(x, y).abs(),
    "norm": lambda x, y: torch.linalg.vector_norm(torch.stack([x, y]), dim=0),
    "norm, 3": lambda x, y: torch.linalg.vector_norm(torch.stack([x, y]), 3, dim=0),
    "normalize": lambda x, y: torch.nn.functional.normalize(torch.stack([x, y]), dim=0),
    "distance": lambda x, y: torch.cdist(x[:, None], y[:, None]),
    "dist": lambda x, y: torch.dist(x[:2], y[:2]),
}


@pytest.mark.parametrize("name", CORNERS)
def test_gradients_of_lengths_at_zero(name):
    assert_same_gradients(CORNERS[name], ZERO, ZERO[::-1].copy(), reduction=16)
