"""Shapes, and joining, splitting, padding, reversing, slicing and stitching arrays."""

import jax
import numpy as np
import pytest
import tensorflow as tf
from jax import export

import anyjax
from anyjax.errors import DataDependent
from anyjax.tensorflow.ops.shape import broadcast_gradient_args, concat_offset
from tests.tensorflow.agree import assert_agrees

pytestmark = pytest.mark.sample(every=10)

raw = tf.raw_ops
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 5
Z = (X + 1j * X[::-1]).astype(np.complex64)
ROW = np.array([[1.0, np.nan, -0.0]], np.float32)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: tf.reshape(x, [4, -1]),
        lambda x: tf.reshape(x, [-1]),
        lambda x: tf.reshape(x, tf.concat([tf.shape(x)[2:], [-1]], 0)),
        lambda x: tf.squeeze(x[:1, :, :1]),
        lambda x: tf.squeeze(x[:1, :, :1], [-1]),
        lambda x: tf.expand_dims(x, -2),
        lambda x: tf.transpose(x, [2, 0, 1]),
        lambda x: tf.transpose(x),
        lambda x: tf.broadcast_to(x, [5, 2, 3, 4]),
        lambda x: tf.tile(x, [2, 1, 3]),
        lambda x: tf.tile(x, [1, 0, 1]),
        lambda x: tf.concat([x, 2 * x, x], -1),
        lambda x: raw.Concat(concat_dim=1, values=[x, x]),
        lambda x: tf.stack([x, -x], -2),
        lambda x: tf.unstack(x, axis=-2),
        lambda x: raw.Unpack(value=x[:0], num=0) or x,
        lambda x: tf.split(x, 3, -2),
        lambda x: tf.split(x, [1, -1, 2], 2),
        lambda x: [tf.ones_like(x), tf.zeros_like(x)],
        lambda x: x * tf.cast(tf.size(x) + tf.rank(x), tf.float32),
        lambda x: x * tf.cast(tf.shape_n([x, x[0]])[1], tf.float32)[1],
    ],
)  # fmt: skip
def test_shapes(function):
    assert_agrees(function, X)


def test_conjugate_transpose():
    assert_agrees(lambda x: tf.transpose(x, [1, 0, 2], conjugate=True), Z)


def test_other_dtypes():
    assert_agrees(lambda x: tf.concat([x, x], 0), np.array([[True, False]]), grad=False)
    assert_agrees(lambda x: tf.tile(x, [2, 2]), np.arange(4).reshape(2, 2), grad=False)
    parallel = lambda x: raw.ParallelConcat(values=[x[:1], x[1:]], shape=x.shape)
    assert_agrees(parallel, X, grad=False)
    assert_agrees(lambda x: tf.broadcast_to(x, [3, 3]), ROW)
    assert_agrees(lambda x: tf.broadcast_to(x, [2, 0]), np.float32(3))


def test_known_shapes_stay_known():
    def function(x):
        wide = tf.broadcast_dynamic_shape(tf.shape(x), [2, 1, 1])
        sums, _ = raw.BroadcastGradientArgs(s0=tf.shape(x), s1=wide)
        return tf.reduce_sum(tf.ones(wide) * x, sums), tf.size(x, tf.int64)

    assert_agrees(function, X[:1])


def test_broadcast_gradient_args_is_tensorflows():
    cases = ([2, 1, 3], [1]), ([], [2]), ([3], [1, 3]), ([1, 3], [2, 1]), ([0, 1], [1])
    for shapes in cases:
        s0, s1 = (np.array(s, np.int32) for s in shapes)
        want = raw.BroadcastGradientArgs(s0=s0, s1=s1)
        got = broadcast_gradient_args(s0, s1)
        assert [x.tolist() for x in got] == [x.numpy().tolist() for x in want], shapes


@pytest.mark.parametrize("formats", [("NHWC", "NCHW"), ("NCHW", "NHWC"), ("NHWC", "HWNC")])
def test_data_formats(formats):
    how = dict(zip(("src_format", "dst_format"), formats))
    assert_agrees(lambda x: raw.DataFormatDimMap(x=x, **how), np.array([0, -1, 2, 1], np.int32))
    for x in (np.arange(4), np.arange(8).reshape(4, 2)):
        assert_agrees(lambda x: raw.DataFormatVecPermute(x=x, **how), x.astype(np.int32))
    if formats[1] != "HWNC":
        assert_agrees(lambda x: raw.DataFormatVecPermute(x=x, **how), np.array([5, 6], np.int32))


def test_concat_offset():
    assert_agrees(lambda x: tf.concat([x[:1], x, x[:0]], 0) * 2, X)
    shapes = np.array([[2, 3], [2, 5], [2, 1]], np.int32)
    want = raw.ConcatOffset(concat_dim=1, shape=list(shapes))
    for mine, theirs in zip(concat_offset(np.array(1), list(shapes)), want):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: tf.zeros(tf.shape(x)),
        lambda x: tf.range(tf.shape(x)[1]),
        lambda x: tf.reshape(x, [tf.shape(x)[0] * tf.shape(x)[1]]),
        lambda x: tf.slice(x, [0, 1], [tf.shape(x)[0], tf.shape(x)[1] - 1]),
        lambda x: tf.one_hot(tf.cast(x, tf.int32), tf.shape(x)[1]),
        lambda x: tf.pad(tf.gather(x, 1, axis=1), [[0, tf.shape(x)[1]]]),
        lambda x: tf.tile(tf.linalg.band_part(x, -1, 0), [1, tf.shape(x)[0]]),
    ],
)
def test_symbolic_sizes(function):
    spec = tf.TensorSpec([None, None], tf.float32)
    model = anyjax.from_tensorflow(tf.function(function, [spec]))
    shape = jax.ShapeDtypeStruct(export.symbolic_shape("b, n"), np.float32)
    program = export.export(jax.jit(lambda x: model.apply({}, x)))(shape)
    np.testing.assert_array_equal(program.call(X[0]), function(X[0]))


def test_a_traced_shape_is_an_error():
    model = anyjax.from_tensorflow(lambda x, n: tf.reshape(x, n), X, np.array([4, 6], np.int32))
    with pytest.raises(DataDependent, match="shape of Reshape"):
        jax.jit(lambda n: model.apply({}, X, n))(np.array([4, 6], np.int32))
    assert model.apply({}, X, np.array([4, 6], np.int32)).shape == (4, 6)


def test_programs_are_short():
    model = anyjax.from_tensorflow(lambda x: tf.unstack(tf.concat([x, x], 0), axis=1), X)
    text = str(jax.make_jaxpr(lambda x: model.apply({}, x))(X))
    assert text.count(" = ") == 5, text  # concatenate, split, three times squeeze


# Padding.


M = np.arange(12, dtype=np.float32).reshape(3, 4)
PAIRS = [[1, 2], [0, 3]]


@pytest.mark.parametrize("array", [M, M.astype(np.int32), M > 3, M[:0], M * (1 + 1j)])
def test_pad(array):
    assert_agrees(lambda x: tf.pad(x, PAIRS), array)


def test_pad_with_a_value():
    assert_agrees(
        lambda x, c: raw.PadV2(input=x, paddings=PAIRS, constant_values=c),
        M,
        np.float32(-np.inf),
    )
    assert_agrees(lambda x: tf.pad(x, np.zeros((0, 2), int), constant_values=3), np.float32(1))


@pytest.mark.parametrize("mode", ["REFLECT", "SYMMETRIC"])
def test_mirror_pad(mode):
    assert_agrees(lambda x: tf.pad(x, PAIRS, mode), M)
    grad = lambda g: raw.MirrorPadGrad(input=g, paddings=[[1, 1], [0, 2]], mode=mode)
    assert_agrees(grad, np.arange(24, dtype=np.float32).reshape(4, 6))


# Reversing and rolling.


@pytest.mark.parametrize("axes", [[0], [-1, 1], np.zeros(0, int)])
def test_reverse(axes):
    assert_agrees(lambda x: tf.reverse(x, axes), X)


def test_reverse_v1():
    assert_agrees(lambda x: raw.Reverse(tensor=x, dims=[True, False, True]), X)


@pytest.mark.parametrize("shift, axis", [(1, 0), (-2, -1), ([1, 3], [0, 2]), ([1, 1], [1, 1])])
def test_roll(shift, axis):
    assert_agrees(lambda x: tf.roll(x, shift, axis), X)
    assert_agrees(lambda x, s: tf.roll(x, s, axis), X, np.array(shift, np.int32))


@pytest.mark.parametrize("axes", [(1, 0), (2, 1), (0, 2)])
def test_reverse_sequence(axes):
    along, batch = axes
    size, longest = X.shape[batch], X.shape[along]
    lengths = np.minimum(np.arange(size, dtype=np.int32), longest)
    assert_agrees(lambda x, n: tf.reverse_sequence(x, n, along, batch), X, lengths)


# Slices.


CUBE = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
I = np.int32(2)
INDICES = [
    np.s_[1], np.s_[-1], np.s_[:, 1:3], np.s_[::-1], np.s_[..., ::-2], np.s_[:, None, -3:-1, 0],
    np.s_[None, ..., None], np.s_[2:1], np.s_[-100:100:2], np.s_[1, ..., 3], np.s_[:, 3:0:-1, 4],
    np.s_[5:-9:-1], np.s_[0, 1, 2], np.s_[..., None, 1:2],
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_strided_slice(index):
    assert_agrees(lambda x: x[index], CUBE)


def test_strided_slice_of_other_dtypes():
    assert_agrees(lambda x: x[::-2, 1], np.arange(12).reshape(3, 4))
    assert_agrees(lambda x: x[:, 1:], np.eye(3, dtype=bool))
    assert_agrees(lambda x: x[1:], CUBE[:0])


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
    assert_agrees(function, CUBE, I)


def test_traced_ends_are_an_error():
    model = anyjax.from_tensorflow(lambda x, i: x[: i + 1], CUBE, I)
    with pytest.raises(DataDependent, match="begins and ends"):
        jax.jit(lambda i: model.apply({}, CUBE, i))(I)
    assert model.apply({}, CUBE, I).shape == (3, 4, 5)


@pytest.mark.parametrize("size", [[2, -1, 1], [0, 2, -1], [-1, -1, -1]])
def test_slice(size):
    assert_agrees(lambda x: tf.slice(x, [1, 0, 2], size), CUBE)


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
    shape = raw.StridedSlice(input=CUBE, **where).shape
    dy = np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)
    assert_agrees(lambda dy: raw.StridedSliceGrad(shape=[3, 4, 5], dy=dy, **where), dy)
    assert_agrees(lambda x, v: raw.TensorStridedSliceUpdate(input=x, value=v, **where), CUBE, dy)


# Rows put together from arrays.


ROWS = np.arange(12, dtype=np.float32).reshape(6, 2)


@pytest.mark.parametrize("function", [tf.dynamic_stitch, tf.raw_ops.ParallelDynamicStitch])
def test_stitch(function):
    call = lambda at: lambda x: function(indices=at, data=[x[:2], x[2:4]])
    assert_agrees(call([[0, 3], [1, 2]]), ROWS)
    assert_agrees(
        lambda x: function(
            indices=[2, [[0, 1], [4, 3]]], data=[x[0], tf.reshape(x[:4], [2, 2, 2])]
        ),
        ROWS,
    )


def test_some_twice():
    """TensorFlow gives a gradient to rows that another one has replaced; they have none."""
    assert_agrees(lambda x: tf.dynamic_stitch([[0, 1], [1, 2]], [x[:2], x[2:4]]), ROWS, grad=False)
    assert_agrees(lambda x: tf.dynamic_stitch([[], []], [x[:0], x[:0]]), ROWS)


def test_traced_places():
    at = np.array([1, 0], np.int32)
    model = anyjax.from_tensorflow(lambda x, i: tf.dynamic_stitch([i], [x[:2]]), ROWS, at)
    with pytest.raises(DataDependent, match="indices of DynamicStitch"):
        jax.jit(lambda at: model.apply({}, ROWS, at))(at)
    np.testing.assert_array_equal(model.apply({}, ROWS, at), ROWS[at])
