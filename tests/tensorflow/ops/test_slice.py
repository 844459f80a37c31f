"""Cutting a part out of an array, and writing one into it."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tojax
from tests.tensorflow.agree import agree
from tojax.errors import DataDependent

raw = tf.raw_ops
X = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
I = np.int32(2)
INDICES = [
    np.s_[1], np.s_[-1], np.s_[:, 1:3], np.s_[::-1], np.s_[..., ::-2], np.s_[:, None, -3:-1, 0],
    np.s_[None, ..., None], np.s_[2:1], np.s_[-100:100:2], np.s_[1, ..., 3], np.s_[:, 3:0:-1, 4],
    np.s_[5:-9:-1], np.s_[0, 1, 2], np.s_[..., None, 1:2],
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_strided_slice(index):
    agree(lambda x: x[index], X)


def test_strided_slice_of_other_dtypes():
    agree(lambda x: x[::-2, 1], np.arange(12).reshape(3, 4))
    agree(lambda x: x[:, 1:], np.eye(3, dtype=bool))
    agree(lambda x: x[1:], X[:0])


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x[i],
        lambda x, i: x[-i],
        lambda x, i: x[:, i, None, ::-2],
        lambda x, i: x[..., i],
        lambda x, i: x[i, 1, i],
        lambda x, i: tf.slice(x, [i, 0, 1], [1, 3, 2]),
        lambda x, i: x[1:, i],
        lambda x, i: x[:, i, 1:3],
    ],
)
def test_traced_begin(function):
    agree(function, X, I)


def test_traced_ends_are_an_error():
    model = tojax.from_tensorflow(lambda x, i: x[: i + 1], X, I)
    with pytest.raises(DataDependent, match="begins and ends"):
        jax.jit(lambda i: model.apply({}, X, i))(I)
    assert model.apply({}, X, I).shape == (3, 4, 5)


@pytest.mark.parametrize("size", [[2, -1, 1], [0, 2, -1], [-1, -1, -1]])
def test_slice(size):
    agree(lambda x: tf.slice(x, [1, 0, 2], size), X)


def ends(begin, end, strides, **masks):
    return dict(begin=begin, end=end, strides=strides, **masks)


ENDS = [
    ends([0, 1], [2, 3], [1, 1]),
    ends([0, 1, 4], [3, 4, 0], [2, 1, -3]),
    ends([1, 0, 2], [0, 0, 3], [1, 1, 1], shrink_axis_mask=5, begin_mask=2, end_mask=2),
    ends([0, 0, 1], [0, 0, 2], [1, 1, 1], ellipsis_mask=1, new_axis_mask=2),
]


@pytest.mark.parametrize("where", ENDS)
def test_gradient_and_update(where):
    shape = raw.StridedSlice(input=X, **where).shape
    dy = np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)
    agree(lambda dy: raw.StridedSliceGrad(shape=[3, 4, 5], dy=dy, **where), dy)
    agree(lambda x, v: raw.TensorStridedSliceUpdate(input=x, value=v, **where), X, dy)
