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


def written_in_one_branch(x):
    array = tf.TensorArray(tf.float32, size=3)
    for i in tf.range(3):
        if x[i, 0] > 0:
            if x[i, 1] > 0:
                array = array.write(i, x[i])
            else:
                array = array.write(i, -x[i])
    return array.stack()


def written_in_a_loop_of_one_branch(x):
    array = tf.TensorArray(tf.float32, size=9)
    if x[0, 0] > 0:
        for i in tf.range(3):
            for j in tf.range(3):
                if x[j, 0] > 0:
                    array = array.write(i * 3 + j, x[i, 0] * x[j, 1])
    return array.stack()


def two_lengths(x):
    array = tf.TensorArray(tf.float32, size=0, dynamic_size=True, clear_after_read=False)
    array = array.write(0, x[0])
    if x[0, 0] > 0:
        array = array.write(1, x[1]).write(2, x[2])
    count = array.size()
    array = array.write(count, 2 * x[0])
    array = array.write(count + 1, 3 * x[0])
    read = array.read(0) + array.read(count) + array.read(count + 1)
    return read, tf.cast(array.size(), tf.float32)


def appended_by_one_branch(x):
    array = tf.TensorArray(tf.float32, size=0, dynamic_size=True, clear_after_read=False)
    array = array.write(0, x[0])
    for i in tf.range(3):
        if x[i, 0] > 0:
            array = array.write(array.size(), x[i])
    return array.read(array.size() - 1)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    "function",
    [written_in_one_branch, written_in_a_loop_of_one_branch, two_lengths, appended_by_one_branch],
)
def test_branches_write_to_a_list(function, sign):
    assert_agrees(function, sign * X)


def test_the_number_of_elements_that_one_branch_adds_is_not_known():
    def function(x):
        array = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
        array = array.write(0, x[0])
        if x[0, 0] > 0:
            array = array.write(1, x[1])
        return array.stack()

    with pytest.raises(anyjax.errors.DataDependent, match="number of elements of a TensorArray"):
        anyjax.from_tensorflow(function)(X)


def test_branches_write_elements_of_two_shapes():
    def function(x):
        array = tf.TensorArray(tf.float32, size=1, infer_shape=False)
        if x[0, 0] > 0:
            array = array.write(0, x[0])
        else:
            array = array.write(0, x)
        return array.read(0)

    with pytest.raises(anyjax.errors.Unsupported, match="elements of different shapes"):
        anyjax.from_tensorflow(function)(X)


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_a_place_far_behind_the_end(dtype):
    """The buffer has room for one more; numbers beyond it are no zeros."""

    def function(x, place):
        array = tf.TensorArray(x.dtype, size=0, dynamic_size=True)
        return array.write(place, x).read(place)

    model = anyjax.from_tensorflow(function)
    one = np.ones(2, dtype)
    assert (np.asarray(model(one, np.int32(0))) == one).all()
    if dtype is np.float32:
        assert np.isnan(model(one, np.int32(5))).all()
    else:
        with pytest.raises(anyjax.errors.Unsupported):
            model(one, np.int32(5))
