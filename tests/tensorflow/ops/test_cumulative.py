"""Running sums, products and log-sums."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tensorflow.agree import agree

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
FUNCTIONS = {
    "sum": tf.cumsum, "product": tf.math.cumprod, "logsumexp": tf.math.cumulative_logsumexp,
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, -1])
def test_each_way(name, axis, exclusive, reverse):
    grad = not (name == "logsumexp" and exclusive)  # TensorFlow's is NaN
    agree(lambda x: FUNCTIONS[name](x, axis, exclusive, reverse), X, grad=grad)


def test_of_integers():
    agree(tf.cumsum, np.arange(-3, 4, dtype=np.int8) * 30)
    agree(tf.math.cumprod, np.arange(-3, 4, dtype=np.int32))


def test_of_nothing():
    agree(tf.cumsum, np.zeros((0, 3), np.float32), vmap=False)
