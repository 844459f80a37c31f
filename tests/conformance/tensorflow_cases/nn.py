"""tf.nn: activations, convolutions, pooling, normalization, losses, embeddings."""

import tensorflow as tf

from tests.conformance.stablehlo_cases.arguments import lines, named

WORDS = {
    "crelu elu gelu leaky_relu log_softmax relu relu6 selu silu softmax softplus softsign swish "
    "tanh sigmoid l2_loss": "f3,4",
    "bias_add": "f3,4 f4",
    "sigmoid_cross_entropy_with_logits": "q3,4 f3,4",
}


def causal_attention(q, k, v):
    scores = tf.matmul(q, k, transpose_b=True) / tf.sqrt(tf.cast(tf.shape(k)[-1], q.dtype))
    n = tf.shape(scores)[-1]
    mask = tf.linalg.band_part(tf.ones([n, n]), -1, 0)
    return tf.matmul(tf.nn.softmax(scores * mask - 1e9 * (1 - mask)), v)


def padded_attention(q, k, v, lengths):
    scores = tf.einsum("bqd,bkd->bqk", q, k)
    mask = tf.sequence_mask(lengths + 1, tf.shape(k)[1])[:, None]
    return tf.einsum("bqk,bkd->bqd", tf.nn.softmax(tf.where(mask, scores, -1e9)), v)


def rotary(x):
    half = x.shape[-1] // 2
    angle = tf.range(tf.shape(x)[1], dtype=tf.float32)[:, None] / 10.0 ** tf.range(
        half, dtype=tf.float32
    )
    a, b = tf.split(x, 2, axis=-1)
    return tf.concat(
        [a * tf.cos(angle) - b * tf.sin(angle), a * tf.sin(angle) + b * tf.cos(angle)], -1
    )


def sinusoids(x):
    length, width = tf.shape(x)[1], x.shape[2]
    at = tf.cast(tf.range(length)[:, None], tf.float32)
    rate = tf.pow(1e-4, tf.range(0, width, 2, dtype=tf.float32) / width)
    return x + tf.reshape(tf.stack([tf.sin(at * rate), tf.cos(at * rate)], -1), [length, width])


def layer_norm(x, g, b):
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, b, g, 1e-6)


def rms_norm(x, g):
    return x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), -1, keepdims=True) + 1e-6) * g


def group_norm(x, g):
    b, h, w, c = x.shape
    grouped = tf.reshape(x, [b, h, w, 2, c // 2])
    mean, variance = tf.nn.moments(grouped, [1, 2, 4], keepdims=True)
    return tf.reshape((grouped - mean) / tf.sqrt(variance + 1e-5), [b, h, w, c]) * g


def squeeze_excite(x, w, u):
    s = tf.nn.relu(tf.reduce_mean(x, [1, 2]) @ w)
    return x * tf.sigmoid(s @ u)[:, None, None]


def residual_block(x, w, u):
    y = tf.nn.relu(tf.nn.conv2d(x, w, 1, "SAME"))
    return tf.nn.relu(x + tf.nn.conv2d(y, u, 1, "SAME"))


def focal(labels, logits):
    p = tf.sigmoid(logits)
    ce = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
    pt = labels * p + (1 - labels) * (1 - p)
    return tf.reduce_mean((1 - pt) ** 2 * ce)


def dice(labels, logits):
    p = tf.nn.softmax(logits)
    top = 2 * tf.reduce_sum(labels * p, [0, 1])
    return 1 - tf.reduce_mean(top / (tf.reduce_sum(labels + p, [0, 1]) + 1e-6))


def contrastive(a, b):
    a, b = tf.math.l2_normalize(a, 1), tf.math.l2_normalize(b, 1)
    logits = tf.matmul(a, b, transpose_b=True) / 0.1
    labels = tf.range(tf.shape(a)[0])
    loss = tf.nn.sparse_softmax_cross_entropy_with_logits
    return tf.reduce_mean(loss(labels, logits) + loss(labels, tf.transpose(logits))) / 2


def triplet(a, p, n):
    d = lambda x, y: tf.reduce_sum(tf.square(x - y), -1)
    return tf.reduce_mean(tf.maximum(d(a, p) - d(a, n) + 1.0, 0.0))


def masked_mean(x, m):
    m = tf.cast(m, x.dtype)
    return tf.math.divide_no_nan(tf.reduce_sum(x * m), tf.reduce_sum(m))


def accuracy(labels, logits):
    return tf.reduce_mean(tf.cast(labels == tf.argmax(logits, -1, tf.int32), tf.float32))


def f1(labels, scores):
    t = labels > 0.5
    p = scores > 0.0
    count = lambda x: tf.reduce_sum(tf.cast(x, tf.float32))
    tp, fp, fn = count(t & p), count(~t & p), count(t & ~p)
    return tf.math.divide_no_nan(2 * tp, 2 * tp + fp + fn)


def iou(a, b):
    lo, hi = tf.maximum(a[:, None, :2], b[None, :, :2]), tf.minimum(a[:, None, 2:], b[None, :, 2:])
    inter = tf.reduce_prod(tf.maximum(hi - lo, 0), -1)
    area = lambda x: tf.reduce_prod(x[:, 2:] - x[:, :2], -1)
    return inter / (area(a)[:, None] + area(b)[None] - inter)


def lstm_step(x, h, c, w):
    i, f, g, o = tf.split(tf.concat([x, h], 1) @ w, 4, axis=1)
    c = tf.sigmoid(f + 1) * c + tf.sigmoid(i) * tf.tanh(g)
    return tf.sigmoid(o) * tf.tanh(c), c


def gru_step(x, h, w, u):
    z, r = tf.split(tf.sigmoid(tf.concat([x, h], 1) @ w), 2, 1)
    return z * h + (1 - z) * tf.tanh(tf.concat([x, r * h], 1) @ u)


def moe(x, gate, experts):
    """Top-2 experts, dense over all of them."""
    scores, at = tf.math.top_k(tf.nn.softmax(x @ gate), 2)
    weights = tf.reduce_sum(tf.one_hot(at, 4) * scores[..., None], 1)
    return tf.einsum("be,bi,eio->bo", weights, x, experts)


def nucleus(logits):
    order = tf.argsort(logits, direction="DESCENDING", stable=True)
    p = tf.cumsum(tf.nn.softmax(tf.gather(logits, order, batch_dims=1)), axis=-1, exclusive=True)
    kept = tf.where(p < 0.9, tf.gather(logits, order, batch_dims=1), -1e9)
    return tf.gather(kept, tf.argsort(order, stable=True), batch_dims=1)


ROWS = [
    ("atrous_conv2d", "f1,8,8,2 f3,3,2,3", lambda x, w: tf.nn.atrous_conv2d(x, w, 2, "SAME"), 512),
    ("avg_pool1d", "f2,8,3", lambda x: tf.nn.avg_pool1d(x, 2, 2, "VALID")),
    ("avg_pool2d", "f2,7,7,3", lambda x: tf.nn.avg_pool2d(x, 3, 2, "SAME")),
    ("avg_pool3d", "f1,4,4,4,2", lambda x: tf.nn.avg_pool3d(x, 2, 2, "VALID")),
    ("batch_normalization", "f4,3 f3 p3 f3 f3",
     lambda x, m, v, o, s: tf.nn.batch_normalization(x, m, v, o, s, 1e-3)),
    ("fused_batch_norm", "f4,3,3,2 f2 f2",
     lambda x, s, o: tf.compat.v1.nn.fused_batch_norm(x, s, o)[0], 256),
    ("collapse_repeated", "j2,4", lambda x: tf.cast(x[:, 1:] != x[:, :-1], tf.int32)),
    ("conv1d", "f2,9,3 f3,3,4", lambda x, w: tf.nn.conv1d(x, w, 2, "SAME"), 256),
    ("conv2d", "f2,8,8,3 f3,3,3,4", lambda x, w: tf.nn.conv2d(x, w, 1, "SAME"), 512),
    ("conv2d_strided", "f2,9,9,3 f3,3,3,4", lambda x, w: tf.nn.conv2d(x, w, 2, "VALID"), 512),
    ("conv2d_explicit", "f1,6,6,2 f3,3,2,2", lambda x, w: tf.nn.conv2d(
        x, w, 1, [[0, 0], [1, 2], [0, 1], [0, 0]]), 512),
    ("conv2d_dilated", "f1,9,9,2 f3,3,2,2",
     lambda x, w: tf.nn.conv2d(x, w, 1, "SAME", dilations=2), 512),
    ("conv2d_grouped", "f1,6,6,4 f3,3,2,6", lambda x, w: tf.nn.conv2d(x, w, 1, "SAME"), 512),
    ("conv2d_transpose", "f1,4,4,2 f3,3,3,2",
     lambda x, w: tf.nn.conv2d_transpose(x, w, [1, 8, 8, 3], 2, "SAME"), 512),
    ("conv1d_transpose", "f1,4,2 f3,3,2",
     lambda x, w: tf.nn.conv1d_transpose(x, w, [1, 8, 3], 2, "SAME"), 512),
    ("conv3d", "f1,4,4,4,2 f2,2,2,2,3", lambda x, w: tf.nn.conv3d(x, w, [1] * 5, "SAME"), 512),
    ("conv3d_transpose", "f1,2,2,2,2 f2,2,2,3,2",
     lambda x, w: tf.nn.conv3d_transpose(x, w, [1, 4, 4, 4, 3], [1, 2, 2, 2, 1]), 512),
    ("depthwise_conv2d", "f1,6,6,3 f3,3,3,2",
     lambda x, w: tf.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], "SAME"), 256),
    ("separable_conv2d", "f1,6,6,3 f3,3,3,2 f1,1,6,4",
     lambda x, w, p: tf.nn.separable_conv2d(x, w, p, [1, 1, 1, 1], "SAME"), 512),
    ("dilation2d", "f1,6,6,2 f3,3,2", lambda x, w: tf.nn.dilation2d(
        x, w, [1, 1, 1, 1], "SAME", "NHWC", [1, 1, 1, 1])),
    ("erosion2d", "f1,6,6,2 f3,3,2", lambda x, w: tf.nn.erosion2d(
        x, w, [1, 1, 1, 1], "SAME", "NHWC", [1, 1, 1, 1])),
    ("ctc_loss", "f5,2,4", lambda x: tf.nn.ctc_loss(
        tf.constant([[1, 2], [2, 0]]), x, tf.constant([2, 1]), tf.constant([5, 4])), 512),
    ("embedding_lookup", "f8,3 i2,4", lambda t, i: tf.nn.embedding_lookup(t, i)),
    ("embedding_max_norm", "f8,3 i4", lambda t, i: tf.nn.embedding_lookup(t, i, max_norm=1.0)),
    ("embedding_lookup_sparse", "f8,3", lambda t: tf.nn.embedding_lookup_sparse(
        t, tf.sparse.SparseTensor([[0, 0], [0, 1], [1, 0]], tf.constant([1, 3, 0], tf.int64),
                                  [2, 2]), None, combiner="mean")),
    ("gelu_tanh", "f3,4", lambda x: tf.nn.gelu(x, approximate=True)),
    ("l2_normalize", "f3,4", lambda x: tf.nn.l2_normalize(x, axis=1)),
    ("lrn", "f1,3,3,8", lambda x: tf.nn.local_response_normalization(x, 2, alpha=0.1, beta=0.7)),
    ("log_poisson_loss", "p4 f4", lambda t, x: tf.nn.log_poisson_loss(t, x, True)),
    ("max_pool1d", "f2,8,3", lambda x: tf.nn.max_pool1d(x, 2, 2, "VALID")),
    ("max_pool2d", "f2,7,7,3", lambda x: tf.nn.max_pool2d(x, 3, 2, "SAME")),
    ("max_pool2d_explicit", "f1,6,6,2", lambda x: tf.nn.max_pool2d(
        x, 2, 2, [[0, 0], [1, 1], [1, 1], [0, 0]])),
    ("max_pool3d", "f1,4,4,4,2", lambda x: tf.nn.max_pool3d(x, 2, 2, "VALID")),
    ("max_pool_with_argmax", "f1,4,4,2",
     lambda x: tf.nn.max_pool_with_argmax(x, 2, 2, "VALID")),
    ("pool_dilated", "f1,8,8,2", lambda x: tf.nn.pool(x, [3, 3], "AVG", [1, 1], "VALID",
                                                      dilations=[2, 2])),
    ("convolution", "f1,8,8,2 f3,3,2,3",
     lambda x, w: tf.nn.convolution(x, w, padding="SAME", dilations=[2, 2]), 512),
    ("relu6_grad", "g3,4", lambda x: tf.nn.relu6(x * 2)),
    ("softmax_cross_entropy", "q3,4 f3,4", tf.nn.softmax_cross_entropy_with_logits),
    ("sparse_softmax_cross_entropy", "j4 f4,3",
     tf.nn.sparse_softmax_cross_entropy_with_logits),
    ("weighted_cross_entropy", "q3,4 f3,4",
     lambda t, x: tf.nn.weighted_cross_entropy_with_logits(t, x, 2.0)),
    ("sufficient_statistics", "f3,4", lambda x: tf.nn.sufficient_statistics(x, [0])[:3]),
    ("normalize_moments", "f f3 p3", lambda c, a, b: tf.nn.normalize_moments(
        tf.abs(c) + 1, a, b, None)),
    ("with_space_to_batch", "f1,4,4,1", lambda x: tf.nn.with_space_to_batch(
        x, [2, 2], "VALID", lambda y, *_: tf.nn.max_pool2d(y, 1, 1, "VALID"), [1, 1])),
    ("zero_fraction", "f3,4", lambda x: tf.nn.zero_fraction(tf.nn.relu(x))),
    ("isotonic_regression", "f6", lambda x: tf.nn.isotonic_regression(x)[0]),
    ("causal_attention", "f2,4,3 f2,4,3 f2,4,3", causal_attention, 256),
    ("padded_attention", "f2,3,4 f2,8,4 f2,8,4 i2", padded_attention, 256),
    ("rotary", "f2,5,8", rotary),
    ("sinusoids", "f2,5,8", sinusoids),
    ("layer_norm", "f3,8 f8 f8", layer_norm),
    ("rms_norm", "f3,8 f8", rms_norm),
    ("group_norm", "f2,3,3,4 f4", group_norm, 256),
    ("squeeze_excite", "f2,4,4,4 f4,2 f2,4", squeeze_excite, 256),
    ("residual_block", "f1,5,5,3 f3,3,3,3 f3,3,3,3", residual_block, 2048),
    ("focal_loss", "q6 f6", focal),
    ("dice_loss", "q2,3,4 f2,3,4", dice),
    ("contrastive_loss", "f4,6 f4,6", contrastive, 512),
    ("triplet_loss", "f4,6 f4,6 f4,6", triplet),
    ("masked_mean", "f3,4 b3,4", masked_mean),
    ("accuracy", "j9 f9,3", accuracy),
    ("f1", "q9 f9", f1),
    ("iou", "o3,4 o2,4", iou),
    ("lstm_step", "f2,3 f2,4 f2,4 f7,16", lstm_step, 256),
    ("gru_step", "f2,3 f2,4 f7,8 f7,4", gru_step, 256),
    ("moe", "f5,3 f3,4 f4,3,2", moe, 256),
    ("nucleus", "f2,8", nucleus),
    ("label_smoothing", "j4 f4,3", lambda t, x: tf.nn.softmax_cross_entropy_with_logits(
        tf.one_hot(t, 3) * 0.9 + 0.1 / 3, x)),
    ("huber", "f6 f6", lambda a, b: tf.keras.losses.Huber()(a, b)),
    ("kl", "q3,4 q3,4", lambda a, b: tf.keras.losses.KLDivergence()(a, b)),
    ("hinge", "f6 f6", lambda a, b: tf.keras.losses.Hinge()(tf.sign(a), b)),
    ("cosine", "f3,4 f3,4", lambda a, b: tf.keras.losses.CosineSimilarity()(a, b)),
    ("binary_crossentropy", "q3,4 q3,4", lambda a, b: tf.keras.losses.binary_crossentropy(a, b)),
    ("categorical_crossentropy", "q3,4 q3,4",
     lambda a, b: tf.keras.losses.categorical_crossentropy(a, b)),
    ("log_cosh", "f6 f6", lambda a, b: tf.keras.losses.LogCosh()(a, b)),
    ("poisson", "p6 p6", lambda a, b: tf.keras.losses.Poisson()(a, b)),
    ("mean_squared_log", "p6 p6", lambda a, b: tf.keras.losses.MeanSquaredLogarithmicError()(a, b)),
    ("top_k_accuracy", "j9 f9,6", lambda t, x: tf.keras.metrics.sparse_top_k_categorical_accuracy(
        t, x, 2)),
]  # fmt: skip
CASES = {**named("nn", tf.nn, WORDS), **lines("nn", ROWS)}
