"""Elementwise operators: arithmetic, bits, comparisons, complex numbers, choosing."""

import jax
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import anyjax
from anyjax.errors import DataDependent
from tests.tensorflow.agree import assert_agrees

pytestmark = pytest.mark.sample(every=10)

R = tf.raw_ops
X = np.array([[-2.0, -0.5, 0.0, -0.0], [0.25, 1.0, 3.0, 2.5]], np.float32)
ODD = np.array([-np.inf, np.inf, np.nan, -1.0, 2.0], np.float32)
POSITIVE = np.array([0.0, 0.1, 1.0, 2.5, np.inf], np.float32)
INSIDE = np.array([-1.0, -0.5, 0.0, 0.75, 1.0], np.float32)
ABOVE = np.array([1.0, 1.5, 20.0], np.float32)
COMPLEX = np.array([1 + 2j, -0.5 + 0.25j, 2 - 1j], np.complex64)
INTEGERS = np.array([-7, -3, 0, 4, 9], np.int32)
EMPTY = np.zeros((0, 3), np.float32)
ANY = [
    "Abs",
    "Asinh",
    "Atan",
    "Ceil",
    "Cos",
    "Cosh",
    "Exp",
    "Expm1",
    "Floor",
    "Neg",
    "Rint",
    "Round",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Square",
    "Tan",
    "Tanh",
]
HOLOMORPHIC = [
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Cos",
    "Cosh",
    "Exp",
    "Expm1",
    "Inv",
    "Log",
    "Log1p",
    "Neg",
    "Reciprocal",
    "Rsqrt",
    "Sigmoid",
    "Sin",
    "Sinh",
    "Sqrt",
    "Square",
    "Tan",
    "Tanh",
]
SOME = [
    *((name, POSITIVE) for name in ("Log", "Log1p", "Sqrt")),
    *((name, POSITIVE[1:]) for name in ("Inv", "Reciprocal", "Rsqrt")),
    *((name, INSIDE) for name in ("Acos", "Asin", "Atanh")),
    ("Acosh", ABOVE),
    *((name, ODD) for name in ("Abs", "Floor", "Round", "Sigmoid", "Tanh", "Exp")),
    *((name, EMPTY) for name in ("Abs", "Exp")),
    *((name, np.float32(0.5)) for name in ("Abs", "Exp")),
    *((name, INTEGERS) for name in ("Abs", "Neg", "Sign", "Square")),
]


@pytest.mark.parametrize("name", ANY)
def test_of_any_number(name):
    assert_agrees(lambda x: getattr(R, name)(x=x), X)


@pytest.mark.parametrize(("name", "x"), SOME)
def test_of_some_numbers(name, x):
    assert_agrees(lambda x: getattr(R, name)(x=x), x, vmap=x.size > 0)


@pytest.mark.parametrize("name", HOLOMORPHIC)
def test_of_complex_numbers(name):
    assert_agrees(lambda x: getattr(R, name)(x=x), COMPLEX)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", ["Exp", "Tanh", "Sigmoid", "Rsqrt"])
def test_of_short_floats(name, dtype):
    assert_agrees(lambda x: getattr(R, name)(x=x), np.array([0.3, 1.0, 2.0], dtype))


ROW = np.array([2.0, -1.0, 0.0, 3.0], np.float32)
PAIRS = {
    "Add": (X, ROW), "AddV2": (X, np.float32(2)), "Sub": (ROW, X), "Mul": (X, ROW[None]),
    "RealDiv": (X, ROW + 0.5), "Div": (X, ROW + 0.5), "DivNoNan": (X, ROW), "MulNoNan": (X, ROW),
    "Maximum": (X, np.array([0.0, -0.5, 0.0, 1.0], np.float32)), "FloorMod": (X, ROW + 0.3),
    "Minimum": (X, np.array([0.0, -0.5, 0.0, 1.0], np.float32)), "Atan2": (X, ROW + 0.5),
    "SquaredDifference": (X, ROW), "Xdivy": (X, ROW + 0.5), "Xlogy": (X, abs(ROW)),
    "Xlog1py": (X, abs(ROW)), "FloorDiv": (X, ROW + 0.3),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_of_two(name):
    assert_agrees(lambda x, y: getattr(R, name)(x=x, y=y), *PAIRS[name])


@pytest.mark.parametrize("name", ["Mod", "TruncateMod"])
def test_remainders_without_gradient(name):
    assert_agrees(lambda x, y: getattr(R, name)(x=x, y=y), X, ROW + 0.3, grad=False)


@pytest.mark.parametrize(
    "name",
    [
        "Add",
        "Sub",
        "Mul",
        "Div",
        "FloorDiv",
        "FloorMod",
        "TruncateDiv",
        "TruncateMod",
        "Mod",
        "Maximum",
        "Minimum",
    ],
)
def test_of_two_integers(name):
    divisors = np.array([3, -2, 4, -3, 2], np.int32)
    assert_agrees(lambda x, y: getattr(R, name)(x=x, y=y), INTEGERS, divisors)


@pytest.mark.parametrize("name", ["AddV2", "Sub", "Mul", "RealDiv", "DivNoNan", "Pow"])
def test_of_two_complex_numbers(name):
    assert_agrees(lambda x, y: getattr(R, name)(x=x, y=y), COMPLEX, COMPLEX[::-1].copy())


@pytest.mark.parametrize("name", ["Xdivy", "Xlogy", "Xlog1py", "SquaredDifference"])
def test_values_of_two_complex_numbers(name):
    """TensorFlow does not conjugate these gradients."""
    assert_agrees(
        lambda x, y: getattr(R, name)(x=x, y=y), COMPLEX, COMPLEX[::-1].copy(), grad=False
    )


NUMBERS = np.array([np.inf, np.nan, 0.0, 1.0], np.float32)


@pytest.mark.parametrize("name", ["DivNoNan", "MulNoNan", "Xdivy", "Xlogy", "Maximum", "Minimum"])
@pytest.mark.parametrize("turned", [False, True])
def test_odd_numbers(name, turned):
    pair = (NUMBERS, np.zeros(4, np.float32))
    assert_agrees(
        lambda x, y: getattr(R, name)(x=x, y=y), *pair[:: -1 if turned else 1], grad=False
    )


BASES = np.array([-2.0, -0.5, 0.0, 0.5, 3.0], np.float32)


def test_powers():
    assert_agrees(tf.pow, BASES[2:], np.array([2.0, 1.5, -0.5], np.float32))
    assert_agrees(tf.pow, BASES, np.array([2.0, -3.0, 2.0, 1.5, 0.5], np.float32))
    assert_agrees(tf.pow, INTEGERS, np.array([2, 3, 4, 0, 1], np.int32))


@pytest.mark.parametrize("exponent", [-2.0, -1.0, 1.0, 2.0, 3.0, 4.0, 5.0])
def test_known_powers(exponent):
    assert_agrees(lambda x: x**exponent, BASES if exponent > 0 else BASES[3:])


@pytest.mark.parametrize("exponent", [0.5, 0.0])
def test_roots(exponent):
    assert_agrees(lambda x: x**exponent, BASES[3:])


def test_next_after():
    assert_agrees(tf.math.nextafter, X, X[::-1].copy())


def test_bounds():
    low, high = np.float32(-0.5), np.float32(1.0)
    assert_agrees(
        lambda *xs: R.ClipByValue(t=xs[0], clip_value_min=xs[1], clip_value_max=xs[2]), X, low, high
    )
    assert_agrees(lambda x: tf.clip_by_value(x, -0.5, 1.0), X)
    assert_agrees(lambda x: tf.clip_by_value(x, -3, 4), INTEGERS)


def test_of_several():
    assert_agrees(lambda *xs: tf.add_n(xs), X, X + 1, X * 2)
    assert_agrees(tf.linalg.cross, X[:, :3], X[:, 1:])


def test_what_tensorflow_only_computes_where_it_rewrites_graphs():
    """AccumulateNV2 has no kernel; Round of integers gives 0."""
    total = anyjax.from_tensorflow(lambda *xs: R.AccumulateNV2(inputs=xs, shape=[2, 4]), X, X)
    assert (total(X, X) == 2 * X).all()
    assert (anyjax.from_tensorflow(lambda x: R.Round(x=x), INTEGERS)(INTEGERS) == INTEGERS).all()


def test_a_known_small_power_is_a_product():
    model = anyjax.from_tensorflow(lambda x: x**2.0, X)
    assert "integer_pow[y=2]" in str(jax.make_jaxpr(lambda x: model.apply({}, x))(X))


ZERO = np.zeros(7, np.complex64)
EXPONENTS = np.array([1 + 2j, 2, 3, 1.5, 2 - 1j, 0, 1], np.complex64)


def test_powers_of_complex_zero():
    """Where the real part is positive it is 0, and otherwise none."""
    assert_agrees(tf.pow, ZERO[:5], EXPONENTS[:5])
    assert_agrees(tf.pow, ZERO, EXPONENTS, vmap=False)
    assert_agrees(lambda y: tf.pow(tf.constant(0j, tf.complex64), y), EXPONENTS[:5])
    assert_agrees(lambda z: z ** (1 + 2j), ZERO, grad=False)


ENDS = np.array([0, -0.0, 1, -1, 2, np.inf, np.nan], np.float32)
EDGES = [
    tf.math.xlogy,
    tf.math.xlog1py,
    tf.math.xdivy,
    tf.math.multiply_no_nan,
    tf.math.divide_no_nan,
]


@pytest.mark.parametrize("function", EDGES)
def test_edges_of_what_is_0_at_0(function):
    assert_agrees(function, *(v.ravel() for v in np.meshgrid(ENDS, ENDS)), vmap=False)


LENGTHS = {
    "abs": lambda x, y: tf.abs(tf.complex(x, y)),
    "norm": lambda x, y: tf.norm(tf.stack([x, y]), axis=0),
    "complex norm": lambda x, y: tf.norm(tf.complex(x, y)),
    "euclidean": lambda x, y: tf.math.reduce_euclidean_norm(tf.stack([x, y]), 0),
    "l2_normalize": lambda x, y: tf.math.l2_normalize(tf.stack([x, y]), 0),
    "std": lambda x, y: tf.math.reduce_std(tf.stack([x, y]), 0),
}


@pytest.mark.parametrize("name", LENGTHS)
def test_gradients_of_lengths_at_zero(name):
    x, y = (v.ravel() for v in np.meshgrid(ENDS[:5], ENDS[:5]))
    assert_agrees(LENGTHS[name], x, y, vmap=False)


# Bits of integers.


DTYPES = [np.int8, np.uint8, np.int16, np.int32, np.uint32]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "name", ["BitwiseAnd", "BitwiseOr", "BitwiseXor", "LeftShift", "RightShift"]
)
def test_bits_of_two(name, dtype):
    x = np.array([[-100, 77], [3, -1]]).astype(dtype)
    assert_agrees(lambda x, y: getattr(R, name)(x=x, y=y), x, np.array([2, 100]).astype(dtype))
    assert_agrees(lambda x, y: getattr(R, name)(x=x, y=y), x, np.array([-3, 1]).astype(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["Invert", "PopulationCount"])
def test_of_one(name, dtype):
    assert_agrees(lambda x: getattr(R, name)(x=x), np.array([-100, 77, 0, -1]).astype(dtype))


# Comparisons and logic.


LEFT = np.array([[-1.0, np.nan, 0.0], [np.inf, 2.0, -0.0]], np.float32)
RIGHT = np.array([0.0, np.nan, 1.0], np.float32)


@pytest.mark.parametrize(
    "name",
    ["Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual"],
)
def test_comparisons(name):
    assert_agrees(lambda x, y: getattr(R, name)(x=x, y=y), LEFT, RIGHT)
    assert_agrees(lambda x: getattr(R, name)(x=x, y=2), np.arange(4, dtype=np.int32))


@pytest.mark.parametrize("name", ["Equal", "NotEqual"])
def test_shapes_that_do_not_broadcast(name):
    compare = lambda x, y: getattr(R, name)(x=x, y=y, incompatible_shape_error=False)
    assert_agrees(compare, LEFT, RIGHT[:2])
    assert_agrees(compare, LEFT, RIGHT)


@pytest.mark.parametrize("name", ["IsFinite", "IsInf", "IsNan"])
def test_classes_of_numbers(name):
    assert_agrees(lambda x: getattr(R, name)(x=x), LEFT)


def test_logic():
    a, b = np.array([[True], [False]]), np.array([True, False])
    assert_agrees(tf.logical_and, a, b)
    assert_agrees(tf.logical_or, a, b)
    assert_agrees(tf.math.logical_xor, a, b)
    assert_agrees(tf.logical_not, a)


def test_nearly_equal():
    assert_agrees(
        lambda x, y: R.ApproximateEqual(x=x, y=y, tolerance=0.5), LEFT, LEFT + np.float32(0.25)
    )


def test_buckets():
    boundaries = [-1.0, 0.0, 2.0]
    assert_agrees(
        lambda x: R.Bucketize(input=x, boundaries=boundaries),
        np.array([-3, -1, 0.5, 2, 9], np.float32),
    )
    assert_agrees(
        lambda x: R.Bucketize(input=x, boundaries=boundaries), np.arange(-2, 4, dtype=np.int32)
    )


# Complex numbers and their parts.


Z = np.array([1 + 2j, -0.5 + 0.25j, -1.5 - 1j, 0.5 - 3j], np.complex64)


@pytest.mark.parametrize("function", [tf.math.real, tf.math.imag, tf.math.angle, tf.math.conj, abs])
def test_parts(function):
    assert_agrees(function, Z)


def test_the_gradient_of_a_modulus_at_0_is_0():
    assert_agrees(tf.abs, np.array([0, 3 + 4j], np.complex64))


def test_from_parts():
    assert_agrees(tf.complex, Z.real, Z.imag)
    assert_agrees(tf.complex, Z.real[:, None], Z.imag)


def test_sign():
    assert_agrees(lambda x: tf.raw_ops.Sign(x=x), np.array([0, 3 + 4j], np.complex64))


# Choosing by a mask.


YES = np.array([[1.0, np.nan, -0.0], [np.inf, 2.0, 3.0]], np.float32)
NO = np.full((2, 3), 7, np.float32)
MASK = np.array([[True, False, True], [False, False, True]])


@pytest.mark.parametrize(
    "mask, x, y",
    [(MASK, YES, NO), (MASK[0], YES, NO), (MASK, YES[:, :1], NO), (MASK[0, 0], YES, NO[:1]),
     (MASK, MASK.astype(np.int32), np.int32(3)), (MASK[:0], YES[:0], NO[:0])],
)  # fmt: skip
def test_select(mask, x, y):
    assert_agrees(tf.where, mask, x, y)


@pytest.mark.parametrize("mask", [MASK, MASK[:, 0], MASK[0, 0]])
def test_select_v1(mask):
    assert_agrees(tf.compat.v1.where, mask, YES, NO)


def test_where():
    model = anyjax.from_tensorflow(tf.where, MASK)
    with pytest.raises(DataDependent, match="input of Where"):
        jax.jit(lambda mask: model.apply({}, mask))(MASK)
    for mask in (MASK, YES, np.zeros(3, bool)):
        model = anyjax.from_tensorflow(tf.where, mask)
        got = model.apply({}, mask)
        np.testing.assert_array_equal(got, tf.where(mask))
        assert got.dtype == np.int32
