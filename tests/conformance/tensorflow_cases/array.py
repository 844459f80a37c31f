"""Shapes, slices, gathers and scatters; sizes that depend on tf.shape."""

import tensorflow as tf

from tests.conformance.stablehlo_cases.arguments import lines


def windows(x, size=3):
    """Overlapping windows, by a grid of indices."""
    at = tf.range(tf.shape(x)[0] - size + 1)[:, None] + tf.range(size)[None]
    return tf.gather(x, at)


def heads(x, count=2):
    """Splits the last axis into heads, by tf.shape."""
    batch, length = tf.shape(x)[0], tf.shape(x)[1]
    split = tf.reshape(x, [batch, length, count, -1])
    return tf.transpose(split, [0, 2, 1, 3])


def merged(x):
    shape = tf.shape(x)
    return tf.reshape(tf.transpose(x, [0, 2, 1, 3]), tf.stack([shape[0], shape[2], -1]))


def patches(x, size=2):
    """Image to patches by reshaping: (b, h, w, c) -> (b, h/s*w/s, s*s*c)."""
    b, h, w = tf.unstack(tf.shape(x)[:3])
    c = x.shape[-1]
    x = tf.reshape(x, [b, h // size, size, w // size, size, c])
    x = tf.transpose(x, [0, 1, 3, 2, 4, 5])
    return tf.reshape(x, [b, -1, size * size * c])


ROWS = [
    ("argsort", "f3,5", lambda x: tf.argsort(x, direction="DESCENDING", stable=True)),
    ("sort", "f3,5", lambda x: tf.sort(x, axis=0, direction="DESCENDING")),
    ("batch_to_space", "f8,2,2,1", lambda x: tf.batch_to_space(x, [2, 2], [[0, 0], [0, 1]])),
    ("space_to_batch", "f2,4,4,1", lambda x: tf.space_to_batch(x, [2, 2], [[0, 0], [0, 0]])),
    ("space_to_depth", "f1,4,4,3", lambda x: tf.nn.space_to_depth(x, 2)),
    ("depth_to_space", "f1,2,2,8", lambda x: tf.nn.depth_to_space(x, 2)),
    ("bitcast", "f4", lambda x: tf.bitcast(x, tf.int32)),
    ("boolean_mask_static", "f4,3", lambda x: tf.boolean_mask(x, [True, False, True, True])),
    ("broadcast_dynamic", "f3,1", lambda x: tf.broadcast_to(x, [2, tf.shape(x)[0], 4])),
    ("broadcast_shape", "f3,1 f4", lambda a, b: tf.broadcast_to(a, tf.broadcast_dynamic_shape(
        tf.shape(a), tf.shape(b)))),
    ("concat", "f2,3 f4,3", lambda a, b: tf.concat([a, b, a], 0)),
    ("concat_axis", "f2,3 f2,1", lambda a, b: tf.concat([a, b], -1)),
    ("diag", "f4", lambda x: tf.linalg.diag(x, k=1)),
    ("diag_part", "f3,4", lambda x: tf.linalg.diag_part(x, k=(-1, 1))),
    ("set_diag", "f3,3 f3", lambda x, d: tf.linalg.set_diag(x, d)),
    ("dynamic_partition_static", "f6", lambda x: tf.dynamic_partition(x, [0, 1, 0, 1, 1, 0], 2)),
    ("dynamic_stitch", "f3,2 f2,2", lambda a, b: tf.dynamic_stitch([[0, 2, 4], [1, 3]], [a, b])),
    ("edit_distance_free", "i5 i5", lambda a, b: tf.reduce_sum(tf.cast(a != b, tf.int32))),
    ("expand_and_squeeze", "f3,1,4", lambda x: tf.squeeze(tf.expand_dims(x, 0), [0, 2])),
    ("ensure_shape", "f3,4", lambda x: tf.ensure_shape(x, [None, 4]) * 2),
    ("eye_and_ones", "f3", lambda x: tf.eye(3) * x + tf.ones_like(x) + tf.zeros([3, 3])),
    ("extract_volume_patches", "f1,4,4,4,1",
     lambda x: tf.extract_volume_patches(x, [1, 2, 2, 2, 1], [1, 2, 2, 2, 1], "VALID")),
    ("fill_dynamic", "f3,4", lambda x: tf.fill([tf.shape(x)[1], 2], tf.reduce_sum(x))),
    ("fingerprint_free", "i4", lambda x: x * 31 + 7),
    ("gather", "f5,3 i4", lambda x, i: tf.gather(x, i % 5)),
    ("gather_axis", "f5,8 i4", lambda x, i: tf.gather(x, i, axis=1)),
    ("gather_batch", "f2,8,3 i2,4", lambda x, i: tf.gather(x, i, batch_dims=1)),
    ("gather_nd", "f4,5 j3,2", lambda x, i: tf.gather_nd(x, i)),
    ("gather_nd_batch", "f2,4,5 j2,3,1", lambda x, i: tf.gather_nd(x, i, batch_dims=1)),
    ("guarantee_const", "f3", lambda x: tf.guarantee_const(x) + 1),
    ("identity_n", "f3 f2", lambda a, b: tf.identity_n([a, b])),
    ("index_last", "f3,4", lambda x: x[-1, ::-1]),
    ("index_mask_add", "f3,4 b3,4", lambda x, m: tf.where(m, x, tf.zeros_like(x))),
    ("index_newaxis", "f3,4", lambda x: x[:, tf.newaxis, 1:3, ...]),
    ("index_traced", "f6,2 i", lambda x, i: x[i % 6]),
    ("index_traced_row", "f8,2 i", lambda x, i: tf.gather(x, i) + x[i]),
    ("slice_traced_start", "f8,2 j", lambda x, i: tf.slice(x, [i, 0], [4, 2])),
    ("slice_sizes", "f8,2", lambda x: x[: tf.shape(x)[0] // 2]),
    ("linspace", "f f", lambda a, b: tf.linspace(a, b, 5)),
    ("linspace_axis", "f3 f3", lambda a, b: tf.linspace(a, b, 4, axis=-1)),
    ("meshgrid", "f3 f4", lambda a, b: tf.meshgrid(a, b, indexing="ij")),
    ("matrix_band_part", "f4,4", lambda x: tf.linalg.band_part(x, 1, 0)),
    ("one_hot", "i4", lambda i: tf.one_hot(i, 6, on_value=2.0, off_value=-1.0, axis=0)),
    ("one_hot_of_ints", "i2,3", lambda i: tf.one_hot(i, 8, dtype=tf.int32)),
    ("pad_constant", "f2,3", lambda x: tf.pad(x, [[1, 0], [2, 1]], constant_values=3.0)),
    ("pad_reflect", "f4,5", lambda x: tf.pad(x, [[1, 2], [3, 1]], "REFLECT")),
    ("pad_symmetric", "f4,5", lambda x: tf.pad(x, [[1, 2], [3, 1]], "SYMMETRIC")),
    ("pad_to_multiple", "f5,3", lambda x: tf.pad(x, [[0, -tf.shape(x)[0] % 4], [0, 0]])),
    ("parallel_stack", "f3 f3", lambda a, b: tf.stack([a, b], axis=1)),
    ("quantize_levels", "f5", lambda x: tf.quantization.fake_quant_with_min_max_args(x, -1, 1)),
    ("range_dynamic", "f5", lambda x: tf.range(tf.shape(x)[0], dtype=tf.float32) * x),
    ("rank_and_size", "f3,4", lambda x: (tf.rank(x), tf.size(x), tf.shape(x))),
    ("repeat", "f3,2", lambda x: tf.repeat(x, 3, axis=0)),
    ("repeat_each", "f3", lambda x: tf.repeat(x, [1, 0, 2])),
    ("reshape_minus_one", "f4,3,2", lambda x: tf.reshape(x, [tf.shape(x)[0], -1])),
    ("reverse", "f3,4", lambda x: tf.reverse(x, [0, -1])),
    ("reverse_sequence", "f3,8 i3", lambda x, n: tf.reverse_sequence(x, n, seq_axis=1)),
    ("roll", "f3,4", lambda x: tf.roll(x, [1, -2], [0, 1])),
    ("roll_traced", "f8 i", lambda x, n: tf.roll(x, n, 0)),
    ("scatter_nd", "i4 f4,2", lambda i, u: tf.scatter_nd(i[:, None], u, [8, 2])),
    ("scatter_update", "f8,2 f3,2",
     lambda x, u: tf.tensor_scatter_nd_update(x, [[1], [5], [2]], u)),
    ("scatter_add", "f8 i4 f4", lambda x, i, u: tf.tensor_scatter_nd_add(x, i[:, None], u)),
    ("scatter_sub", "f8 i4 f4", lambda x, i, u: tf.tensor_scatter_nd_sub(x, i[:, None], u)),
    ("scatter_max", "f8 f4", lambda x, u: tf.tensor_scatter_nd_max(x, [[0], [3], [5], [6]], u)),
    ("scatter_min", "f8 f4", lambda x, u: tf.tensor_scatter_nd_min(x, [[0], [3], [5], [6]], u)),
    ("searchsorted", "o6 f4", lambda s, v: tf.searchsorted(s, v, side="right")),
    ("bucketize", "f9", lambda x: tf.raw_ops.Bucketize(input=x, boundaries=[-1.0, 0.0, 0.5])),
    ("sequence_mask", "i4", lambda n: tf.sequence_mask(n, 8, dtype=tf.float32)),
    ("shape_n", "f3,4 f2", lambda a, b: tf.shape_n([a, b])),
    ("split", "f6,4", lambda x: tf.split(x, 3)),
    ("split_sizes", "f6,4", lambda x: tf.split(x, [1, 3, -1])),
    ("split_axis", "f6,4", lambda x: tf.split(x, 2, axis=1)[0] * 2),
    ("stack_unstack", "f3,4", lambda x: tf.stack(tf.unstack(x, axis=1)[::-1], axis=0)),
    ("strided_slice_grad", "f6,4", lambda x: x[1:6:2, ::-2]),
    ("tile", "f2,3", lambda x: tf.tile(x, [2, 3])),
    ("tile_dynamic", "f2,3", lambda x: tf.tile(x, [1, tf.shape(x)[0]])),
    ("transpose", "f2,3,4", lambda x: tf.transpose(x, [2, 0, 1])),
    ("transpose_conj", "c2,3", lambda x: tf.transpose(x, conjugate=True)),
    ("unique_static", "f4", lambda x: x + tf.cast(tf.unique([3, 1, 3])[0][1], tf.float32)),
    ("unravel_index", "i3", lambda i: tf.unravel_index(i, [3, 4])),
    ("where_select", "b3,1 f3,4 f4", lambda c, a, b: tf.where(c, a, b)),
    ("where_static", "f5", lambda x: tf.gather(x, tf.where([True, False, True, False, True]))),
    ("where_nan_safe", "f6", lambda x: tf.where(x > 0, tf.math.log(tf.where(x > 0, x, 1.0)), 0.0)),
    ("windows", "f7,2", windows),
    ("heads", "f2,3,8", heads),
    ("merged_heads", "f2,2,3,4", merged),
    ("patches", "f2,4,6,3", patches),
    ("nest", "f3 f4", lambda a, b: {"sum": a + 1, "pair": (b, [a, b])}),
    ("stop_gradient", "f4", lambda x: x * tf.stop_gradient(x)),
    ("ragged_range_sum", "f6", lambda x: tf.RaggedTensor.from_row_splits(x, [0, 2, 5, 6])
     .to_tensor()),
    ("ragged_reduce", "f6", lambda x: tf.reduce_sum(
        tf.RaggedTensor.from_row_splits(x, [0, 2, 5, 6]), axis=1)),
    ("ragged_flat_map", "f6", lambda x: tf.ragged.map_flat_values(
        tf.sin, tf.RaggedTensor.from_row_lengths(x, [1, 2, 3])).flat_values),
    ("ragged_out", "f6", lambda x: tf.RaggedTensor.from_row_lengths(x * 2, [1, 2, 3])),
    ("ragged_constant", "f3", lambda x: tf.ragged.constant([[1.0], [2.0, 3.0]]).to_tensor() @ x[
        :2, None]),
    ("ragged_mean_rows", "f6,2", lambda x: tf.reduce_mean(
        tf.RaggedTensor.from_row_splits(x, [0, 2, 6]), axis=1)),
    ("ragged_concat", "f6", lambda x: tf.concat([
        tf.RaggedTensor.from_row_splits(x, [0, 2, 6])] * 2, axis=1).to_tensor()),
    ("ragged_from_tensor", "f3,4", lambda x: tf.RaggedTensor.from_tensor(
        x, lengths=[1, 4, 2]).to_tensor(-1.0)),
    ("ragged_gather", "f6", lambda x: tf.gather(
        tf.RaggedTensor.from_row_splits(x, [0, 2, 5, 6]), [2, 0, 1]).to_tensor()),
    ("ragged_softmax", "f6", lambda x: tf.nn.softmax(
        tf.RaggedTensor.from_row_splits(x, [0, 2, 5, 6]).to_tensor(-1e9))),
    ("sparse_matmul", "f4,3", lambda x: tf.sparse.sparse_dense_matmul(tf.sparse.SparseTensor(
        [[0, 1], [2, 3]], [2.0, 3.0], [3, 4]), x)),
    ("sparse_matmul_values", "f2 f4,3", lambda v, x: tf.sparse.sparse_dense_matmul(
        tf.sparse.SparseTensor([[0, 1], [2, 3]], v, [3, 4]), x)),
    ("sparse_to_dense", "f2", lambda v: tf.sparse.to_dense(
        tf.sparse.SparseTensor([[0, 1], [2, 3]], v, [3, 4]))),
    ("sparse_reduce_sum", "f3", lambda v: tf.sparse.reduce_sum(
        tf.sparse.SparseTensor([[0, 1], [0, 3], [2, 1]], v, [3, 4]), axis=1)),
    ("sparse_softmax", "f3", lambda v: tf.sparse.softmax(
        tf.sparse.SparseTensor([[0, 1], [0, 3], [2, 1]], v, [3, 4])).values),
    ("sparse_add", "f2 f3,4", lambda v, x: tf.sparse.add(
        tf.sparse.SparseTensor([[0, 1], [2, 3]], v, [3, 4]), x)),
    ("sparse_product", "f2 f3,4", lambda v, x: (
        tf.sparse.SparseTensor([[0, 1], [2, 3]], v, [3, 4]) * x).values),
    ("sparse_reshape", "f2", lambda v: tf.sparse.to_dense(tf.sparse.reshape(
        tf.sparse.SparseTensor([[0, 1], [2, 3]], v, [3, 4]), [4, 3]))),
    ("sparse_transpose", "f2", lambda v: tf.sparse.to_dense(tf.sparse.transpose(
        tf.sparse.SparseTensor([[0, 1], [2, 3]], v, [3, 4])))),
]  # fmt: skip
CASES = lines("array", ROWS)
