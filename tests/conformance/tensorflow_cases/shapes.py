"""Functions of unknown sizes: traced by TensorFlow with None where a word has a question mark."""

from __future__ import annotations

import tensorflow as tf

from tests.conformance.stablehlo_cases.arguments import Case
from tests.conformance.tensorflow_cases import array, gradients, nn

CASES: dict[str, Case] = {}
SIGNATURES: dict[str, list[tf.TensorSpec]] = {}
KINDS = {"f": tf.float32, "i": tf.int32, "j": tf.int32, "p": tf.float32, "o": tf.float32}


def loop_over_rows(x):
    total = tf.zeros_like(x[0])
    for i in tf.range(tf.shape(x)[0]):
        total = tf.tanh(total + x[i])
    return total


def bucketed(x):
    half = tf.shape(x)[0] // 2
    return tf.concat([x[half:], x[:half]], 0)


def mean_pool(x):
    n = tf.shape(x)[1]
    return tf.reduce_sum(x, 1) / tf.cast(n, tf.float32)


def decode_rows(x):
    out = tf.TensorArray(tf.float32, size=tf.shape(x)[0])
    for i in tf.range(tf.shape(x)[0]):
        out = out.write(i, tf.reduce_sum(x[i]) * x[i])
    return out.stack()


def length_branch(x):
    if tf.shape(x)[0] > 3:
        return x * 2
    return x - 1


# name: (arguments, where "?" stands before a size that the function does not know), function
ROWS = {
    "dense": ("f?3,4 f4,5", lambda x, w: tf.nn.relu(x @ w)),
    "flatten": ("f?2,3,4", lambda x: tf.reshape(x, [tf.shape(x)[0], -1])),
    "flatten_unknown": ("f?2,?3,4", lambda x: tf.reshape(x, [-1, 4])),
    "heads": ("f?2,?3,8", array.heads),
    "merged_heads": ("f?2,2,?3,4", array.merged),
    "patches": ("f?2,?4,?6,3", array.patches),
    "windows": ("f?7,2", array.windows),
    "attention": ("f?2,?4,3 f?2,?4,3 f?2,?4,3", nn.causal_attention),
    "rotary": ("f?2,?5,8", nn.rotary),
    "layer_norm": ("f?3,8 f8 f8", nn.layer_norm),
    "contrastive": ("f?4,6 f?4,6", nn.contrastive),
    "padded_attention": ("f?2,?3,4 f?2,?8,4 f?2,?8,4 i?2", nn.padded_attention),
    "conv": ("f?2,?8,?8,2 f3,3,2,3", lambda x, w: tf.nn.conv2d(x, w, 2, "SAME")),
    "pool": ("f?2,?8,?8,2", lambda x: tf.nn.max_pool2d(x, 2, 2, "VALID")),
    "global_pool": ("f?2,?8,?8,2", lambda x: tf.reduce_mean(x, [1, 2])),
    "resize": ("f?1,?4,?4,2", lambda x: tf.image.resize(x, tf.shape(x)[1:3] * 2)),
    "resize_fixed": ("f?1,?4,?4,2", lambda x: tf.image.resize(x, [6, 6])),
    "upsample_nearest": ("f?1,?4,?4,2", lambda x: tf.repeat(tf.repeat(x, 2, 1), 2, 2)),
    "loop_over_rows": ("f?5,3", loop_over_rows),
    "bucketed": ("f?6,2", bucketed),
    "mean_pool": ("f?2,?5,3", mean_pool),
    "decode_rows": ("f?4,3", decode_rows),
    "length_branch": ("f?5", length_branch),
    "map_fn": ("f?5,3", lambda x: tf.map_fn(lambda r: r * tf.reduce_sum(r), x)),
    "scan": ("f?5,3", lambda x: tf.scan(lambda a, r: tf.tanh(a + r), x)),
    "one_hot_loss": ("f?4,5 j?4", lambda x, t: tf.reduce_mean(
        tf.nn.softmax_cross_entropy_with_logits(tf.one_hot(t, tf.shape(x)[1]), x))),
    "gather_rows": ("f?6,2 j?4", lambda x, i: tf.gather(x, i)),
    "last_step": ("f?2,?5,3", lambda x: x[:, -1]),
    "last_by_length": ("f?2,?5,3 j?2", lambda x, n: tf.gather(x, n, axis=1, batch_dims=1)),
    "reverse_time": ("f?2,?5,3", lambda x: tf.reverse(x, [1])),
    "range_mask": ("f?2,?5,3 j?2", lambda x, n: x * tf.sequence_mask(
        n, tf.shape(x)[1], dtype=tf.float32)[..., None]),
    "tile_states": ("f?2,3 f?4,3", lambda x, s: tf.tile(x[:, None], [1, tf.shape(s)[0], 1]) + s),
    "pad_to_even": ("f?5,3", lambda x: tf.pad(x, [[0, tf.shape(x)[0] % 2], [0, 0]])),
    "split_in_two": ("f?4,6", lambda x: tf.split(x, 2, axis=1)),
    "cumulative": ("f?5,3", lambda x: tf.cumsum(x) / tf.cast(
        tf.range(1, tf.shape(x)[0] + 1), tf.float32)[:, None]),
    "broadcast_add": ("f?3,1 f?4", lambda a, b: a + b),
    "top_k": ("f?2,?6", lambda x: tf.math.top_k(x, 2)),
    "sort": ("f?2,?6", lambda x: tf.sort(x, 1)),
    "variance": ("f?5,?3", lambda x: tf.math.reduce_variance(x, 0)),
    "stft": ("f?32", lambda x: abs(tf.signal.stft(x, 16, 8))),
    "frame": ("f?20", lambda x: tf.signal.frame(x, 6, 3)),
    "dropout_mask": ("f?3,4", lambda x: x * tf.cast(
        tf.random.stateless_uniform(tf.shape(x), [1, 2]) > 0.3, tf.float32)),
    "strided": ("f?8,?4", lambda x: x[::2, 1:-1]),
    "outer": ("f?3 f?4", lambda a, b: a[:, None] * b),
    "eye": ("f?3,?3", lambda x: x + tf.eye(tf.shape(x)[0])),
    "unknown_rank": ("f*3,4", lambda x: tf.reduce_sum(x * 2)),
    "unknown_rank_like": ("f*3,4", lambda x: tf.ones_like(x) + tf.zeros(tf.shape(x)) + x),
    "linspace": ("f?5", lambda x: x * tf.linspace(0.0, 1.0, tf.shape(x)[0])),
    "histogram": ("f?9", lambda x: tf.histogram_fixed_width(x, [-1.0, 1.0], 4)),
    "fft": ("f?8", lambda x: tf.abs(tf.signal.rfft(x))),
    "rnn": ("f?2,?5,3 f7,4", lambda x, w: tf.transpose(tf.scan(
        lambda h, s: tf.tanh(tf.concat([s, h], 1) @ w), tf.transpose(x, [1, 0, 2]),
        tf.zeros([tf.shape(x)[0], 4])), [1, 0, 2])),
    "gradient": ("f?3,4", gradients.gradient_inside),
    "mean_loss_gradient": ("f?5,4 f4,2", gradients.gradient_penalty),
    "ragged_rows": ("f?6", lambda x: tf.RaggedTensor.from_row_splits(
        x, [0, 2, tf.shape(x)[0]]).to_tensor()),
}  # fmt: skip


def _spec(word: str) -> tf.TensorSpec:
    kind = KINDS[word[0]]
    if "*" in word:
        return tf.TensorSpec(None, kind)
    sizes = [x for x in word[1:].split(",") if x]
    return tf.TensorSpec([None if x[0] == "?" else int(x) for x in sizes], kind)


for name, (words, function) in ROWS.items():
    CASES[f"shapes.{name}"] = Case(function, words.replace("?", "").replace("*", ""), 512)
    SIGNATURES[f"shapes.{name}"] = [_spec(word) for word in words.split()]
