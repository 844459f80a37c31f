"""Bessel functions."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tensorflow.agree import agree

POSITIVE = np.array([0.05, 0.5, 1.0, 2.0, 7.0, 30.0], np.float32)
BOTH = np.array([-30.0, -7.5, -0.5, 0.0, 0.1, 1.0, 3.0, 9.5], np.float32)
CASES = {
    "BesselI0": BOTH / 4, "BesselI0e": BOTH, "BesselI1": BOTH / 4, "BesselI1e": BOTH,
    "BesselJ0": BOTH, "BesselJ1": BOTH, "BesselK0": POSITIVE, "BesselK0e": POSITIVE,
    "BesselK1": POSITIVE,
    "BesselK1e": POSITIVE, "BesselY0": POSITIVE, "BesselY1": POSITIVE,
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_agrees(name):
    agree(lambda x: getattr(tf.raw_ops, name)(x=x), CASES[name], depth=256)


@pytest.mark.parametrize("name", CASES)
def test_relative(name):
    """Small values, too, are right to their own size."""
    x = CASES[name][CASES[name] > 0]
    agree(lambda x: getattr(tf.raw_ops, name)(x=x), x[-1:], grad=False, depth=1024)


@pytest.mark.parametrize("name", ["BesselK0", "BesselK1", "BesselY0", "BesselY1"])
def test_outside(name):
    x = np.array([-0.5, -1.0], np.float32)
    agree(lambda x: getattr(tf.raw_ops, name)(x=x), x, grad=False)
