"""What cannot be a program of JAX: it has to be refused by name, never computed wrongly."""

import tensorflow as tf

CASES = {
    "numpy_function": lambda x: tf.numpy_function(lambda a: a * 2, [x], tf.float32),
    "py_function": lambda x: tf.py_function(lambda a: a * 2, [x], tf.float32),
    "as_string": lambda x: tf.strings.as_string(x),
    "string_length": lambda x: tf.strings.length(tf.strings.as_string(x)),
    "string_hash": lambda x: tf.strings.to_hash_bucket_fast(tf.strings.as_string(x), 8),
    "string_join": lambda x: tf.strings.join([tf.strings.as_string(x), "a"]),
    "string_format": lambda x: tf.strings.format("{}", x),
    "boolean_mask": lambda x: tf.boolean_mask(x, x > 0),
    "where_indices": lambda x: tf.where(x > 0),
    "unique": lambda x: tf.unique(x)[0],
    "set_difference": lambda x: tf.sparse.from_dense(x[None]).values,
    "dynamic_partition": lambda x: tf.dynamic_partition(x, tf.cast(x > 0, tf.int32), 2),
    "ragged_from_mask": lambda x: tf.ragged.boolean_mask(x[None], x[None] > 0).values,
    "range_of_traced": lambda x: tf.range(tf.cast(tf.reduce_sum(x), tf.int32)),
    "reshape_of_traced": lambda x: tf.zeros(tf.cast(tf.abs(x[:2]) + 1, tf.int32)),
    "repeat_of_traced": lambda x: tf.repeat(x, tf.cast(tf.abs(x), tf.int32)),
    "encode_jpeg": lambda x: tf.io.encode_jpeg(tf.cast(x[None, :, None], tf.uint8)),
    "decode_raw": lambda x: tf.io.decode_raw(tf.strings.as_string(x), tf.uint8),
    "serialize": lambda x: tf.io.serialize_tensor(x),
    "lookup": lambda x: tf.strings.upper(tf.strings.as_string(x)),
    "edit_distance": lambda x: tf.edit_distance(
        tf.sparse.from_dense(x[None]), tf.sparse.from_dense(x[None])),
    "candidate_sampler": lambda x: tf.random.uniform_candidate_sampler(
        tf.cast(x[None], tf.int64), 4, 2, True, 10)[0],
    "dataset": lambda x: tf.data.Dataset.from_tensor_slices(x).reduce(0.0, lambda a, b: a + b),
    "summary": lambda x: tf.raw_ops.ScalarSummary(tags=tf.strings.as_string(x), values=x),
    "growing_loop": lambda x: tf.while_loop(
        lambda a: tf.reduce_sum(a) < 10.0, lambda a: (tf.concat([a, a], 0),), [abs(x)],
        shape_invariants=[tf.TensorShape([None])])[0],
}  # fmt: skip
