"""Bits of integers."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tensorflow.agree import agree

R = tf.raw_ops
DTYPES = [np.int8, np.uint8, np.int16, np.int32, np.uint32]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "name", ["BitwiseAnd", "BitwiseOr", "BitwiseXor", "LeftShift", "RightShift"]
)
def test_of_two(name, dtype):
    x = np.array([[-100, 77], [3, -1]]).astype(dtype)
    agree(lambda x, y: getattr(R, name)(x=x, y=y), x, np.array([2, 100]).astype(dtype))
    agree(lambda x, y: getattr(R, name)(x=x, y=y), x, np.array([-3, 1]).astype(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["Invert", "PopulationCount"])
def test_of_one(name, dtype):
    agree(lambda x: getattr(R, name)(x=x), np.array([-100, 77, 0, -1]).astype(dtype))
