"""Special functions, Bessel functions included."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tensorflow.agree import assert_agrees

pytestmark = pytest.mark.sample(every=10)

R = tf.raw_ops
POSITIVE = np.array([0.05, 0.5, 1.0, 1.5, 2.0, 7.0, 30.0], np.float32)
BOTH = np.array([-7.5, -2.0, -0.5, 0.0, 0.1, 1.0, 3.0, 9.5], np.float32)
UNIT = np.array([0.01, 0.3, 0.5, 0.9], np.float32)
UNARY = {
    "Erf": BOTH, "Erfc": BOTH, "Erfinv": UNIT - 0.4, "Ndtri": UNIT * 0.7, "Lgamma": POSITIVE,
    "Digamma": POSITIVE, "Dawsn": BOTH, "Expint": POSITIVE, "FresnelCos": BOTH,
    "FresnelSin": BOTH, "Spence": POSITIVE,
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_of_one(name):
    assert_agrees(lambda x: getattr(R, name)(x=x), UNARY[name], depth=256)


@pytest.mark.parametrize("name", ["Lgamma", "Digamma", "Erf"])
def test_of_short_floats(name):
    grad = name != "Digamma"
    assert_agrees(lambda x: getattr(R, name)(x=x), POSITIVE.astype(np.float16), grad=grad)


@pytest.mark.parametrize("name", ["Lgamma", "Digamma"])
def test_below_0(name):
    assert_agrees(lambda x: getattr(R, name)(x=x), np.array([-2.3, -1.5, -0.25], np.float32))


def test_poles():
    assert_agrees(tf.math.lgamma, np.array([0.0, -1.0, np.inf], np.float32), grad=False)
    assert_agrees(tf.math.digamma, np.array([0.0, -1.0], np.float32), grad=False)


A = np.array([0.5, 1.0, 3.0, 9.0], np.float32)
BINARY = {
    "Igamma": (A, A[::-1].copy()), "Igammac": (A, A[::-1].copy()),
    "Zeta": (np.array([1.5, 2.0, 4.0, 8.0], np.float32), A),
    "Polygamma": (np.array([0.0, 1.0, 2.0, 3.0], np.float32), A),
    "IgammaGradA": (A, A[::-1].copy()), "RandomGammaGrad": (A, A[::-1].copy()),
}  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
def test_of_two(name):
    names = [x for x in tf.raw_ops.__dict__[name].__signature__.parameters if x != "name"]
    grad = name not in ("IgammaGradA", "RandomGammaGrad")
    assert_agrees(lambda *xs: getattr(R, name)(**dict(zip(names, xs))), *BINARY[name], grad=grad)


def test_the_beta_function():
    assert_agrees(tf.math.betainc, A, A[::-1].copy(), UNIT)
    assert_agrees(lambda x: tf.math.betainc(2.0, 0.5, x), UNIT)


@pytest.mark.parametrize("function", [tf.math.ndtri, tf.math.lgamma, tf.math.erfinv])
def test_infinite_gradients(function):
    assert_agrees(function, np.array([0, 0.25, 0.5, 1], np.float32), vmap=False)


# Bessel functions.


ABOVE_0 = np.array([0.05, 0.5, 1.0, 2.0, 7.0, 30.0], np.float32)
REAL = np.array([-30.0, -7.5, -0.5, 0.0, 0.1, 1.0, 3.0, 9.5], np.float32)
BESSEL = {
    "BesselI0": REAL / 4, "BesselI0e": REAL, "BesselI1": REAL / 4, "BesselI1e": REAL,
    "BesselJ0": REAL, "BesselJ1": REAL, "BesselK0": ABOVE_0, "BesselK0e": ABOVE_0,
    "BesselK1": ABOVE_0,
    "BesselK1e": ABOVE_0, "BesselY0": ABOVE_0, "BesselY1": ABOVE_0,
}  # fmt: skip


@pytest.mark.parametrize("name", BESSEL)
def test_agrees(name):
    assert_agrees(lambda x: getattr(tf.raw_ops, name)(x=x), BESSEL[name], depth=256)


@pytest.mark.parametrize("name", BESSEL)
def test_relative(name):
    """Small values, too, are right to their own size."""
    x = BESSEL[name][BESSEL[name] > 0]
    assert_agrees(lambda x: getattr(tf.raw_ops, name)(x=x), x[-1:], grad=False, depth=1024)


@pytest.mark.parametrize("name", ["BesselK0", "BesselK1", "BesselY0", "BesselY1"])
def test_outside(name):
    x = np.array([-0.5, -1.0], np.float32)
    assert_agrees(lambda x: getattr(tf.raw_ops, name)(x=x), x, grad=False)
