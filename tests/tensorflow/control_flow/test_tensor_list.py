"""TensorArrays and lists."""

import numpy as np
import pytest
import tensorflow as tf

import anyjax
from tests.tensorflow.agree import assert_agrees

pytestmark = pytest.mark.sample(every=8)

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


def growing(x):
    array = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
    for i in tf.range(4):
        array = array.write(i, x * tf.cast(i, tf.float32))
    return array.stack()


def fixed(x):
    array = tf.TensorArray(tf.float32, size=3)
    array = array.unstack(x)
    for i in tf.range(2):
        array = array.write(i, array.read(i + 1) * 2)
    return array.stack(), array.gather([2, 0])


def pushed(x):
    items = tf.raw_ops.EmptyTensorList(
        element_shape=[4], max_num_elements=-1, element_dtype=tf.float32
    )
    for i in range(3):
        items = tf.raw_ops.TensorListPushBack(input_handle=items, tensor=x[i] * 2)
    items, last = tf.raw_ops.TensorListPopBack(
        input_handle=items, element_shape=[4], element_dtype=tf.float32
    )
    stacked = tf.raw_ops.TensorListStack(
        input_handle=items, element_shape=[4], element_dtype=tf.float32, num_elements=-1
    )
    return stacked, last


def joined(x):
    array = tf.TensorArray(tf.float32, size=3, infer_shape=False).split(x, [1, 1, 1])
    return array.concat()


@pytest.mark.parametrize("function", [growing, fixed, pushed, joined])
def test_list(function):
    assert_agrees(function, X)


def test_a_list_that_grows_for_an_unknown_time():
    def function(x):
        array = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
        i = 0
        while tf.reduce_sum(x) < 10.0:
            array, i, x = array.write(i, x), i + 1, x * 2.0
        return array.stack()

    model = anyjax.from_tensorflow(function, abs(X))
    with pytest.raises(anyjax.errors.Unsupported, match="grows in a loop"):
        model(abs(X))
