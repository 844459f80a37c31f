"""Variables: layers, recurrent networks, train steps, optimizers, counters."""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from tests.conformance.stablehlo_cases.arguments import Case

CASES: dict[str, Case] = {}
MAKERS: set[str] = set()  # whose function makes (function, variables)


def program(spec, depth=256):
    """A case that makes its function and its variables."""

    def add(make: Callable):
        name = f"programs.{make.__name__}"
        CASES[name] = Case(make, spec, depth)
        MAKERS.add(name)
        return make

    return add


def variable(name, *shape, trainable=True):
    rng = np.random.default_rng(len(name) + sum(shape))
    values = rng.standard_normal(shape).astype(np.float32) * 0.5
    return tf.Variable(values, name=name, trainable=trainable)


@program("f3,4")
def dense():
    w, b = variable("w", 4, 5), variable("b", 5)
    return lambda x: tf.nn.relu(x @ w + b), [w, b]


@program("f3,4")
def mlp():
    w, b, u, c = (variable("w", 4, 8), variable("b", 8), variable("u", 8, 2), variable("c", 2))
    return lambda x: tf.tanh(x @ w + b) @ u + c, [w, b, u, c]


@program("f4")
def counter():
    n = tf.Variable(0, name="n", trainable=False)

    def function(x):
        n.assign_add(1)
        return x * tf.cast(n, tf.float32)

    return function, [n]


@program("f4")
def moving_average():
    m = variable("m", 4, trainable=False)

    def function(x):
        m.assign(0.9 * m + 0.1 * x)
        return x - m

    return function, [m]


@program("f6,3")
def batch_norm_training():
    g, b = variable("g", 3), variable("b", 3)
    mean, var = (
        variable("mean", 3, trainable=False),
        tf.Variable(tf.ones([3]), name="var", trainable=False),
    )

    def function(x):
        m, v = tf.nn.moments(x, [0])
        mean.assign_sub(0.1 * (mean - m))
        var.assign_sub(0.1 * (var - v))
        return tf.nn.batch_normalization(x, m, v, b, g, 1e-3)

    return function, [g, b, mean, var]


@program("f6,3 f6,1")
def sgd_step():
    w = variable("w", 3, 1)

    def function(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ w - y) ** 2)
        w.assign_sub(0.1 * tape.gradient(loss, w))
        return loss

    return function, [w]


@program("f6,3 f6,1")
def momentum_step():
    w, v = variable("w", 3, 1), variable("v", 3, 1, trainable=False)

    def function(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ w - y) ** 2)
        v.assign(0.9 * v + tape.gradient(loss, w))
        w.assign_sub(0.1 * v)
        return loss

    return function, [w, v]


@program("f6,3 f6,1")
def steps_in_a_loop():
    w = variable("w", 3, 1)

    def function(x, y):
        for _ in tf.range(4):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((x @ w - y) ** 2)
            w.assign_sub(0.1 * tape.gradient(loss, w))
        return tf.reduce_mean((x @ w - y) ** 2)

    return function, [w]


@program("f6,3 f6,1")
def accumulated_gradients():
    w, g = variable("w", 3, 1), variable("g", 3, 1, trainable=False)

    def function(x, y):
        g.assign(tf.zeros_like(g))
        for i in tf.range(3):
            at = x[i * 2 : i * 2 + 2], y[i * 2 : i * 2 + 2]
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((at[0] @ w - at[1]) ** 2)
            g.assign_add(tape.gradient(loss, w) / 3)
        return tf.reduce_sum(g**2)

    return function, [w, g]


@program("f6,3 f6,1")
def gradient_clipping_step():
    w, b = variable("w", 3, 1), variable("b", 1)

    def function(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ w + b - y) ** 2)
        grads, norm = tf.clip_by_global_norm(tape.gradient(loss, [w, b]), 1.0)
        for v, g in zip([w, b], grads):
            v.assign_sub(0.1 * g)
        return loss, norm

    return function, [w, b]


@program("f6,3 f6,1")
def loss_scaling_step():
    w, scale = variable("w", 3, 1), tf.Variable(8.0, name="scale", trainable=False)

    def function(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ w - y) ** 2) * scale
        g = tape.gradient(loss, w) / scale
        if tf.reduce_all(tf.math.is_finite(g)):
            w.assign_sub(0.1 * g)
            scale.assign(scale * 2)
        else:
            scale.assign(scale / 2)
        return loss / scale

    return function, [w, scale]


@program("i6")
def embedding_step():
    t = variable("t", 8, 3)

    def function(i):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.embedding_lookup(t, i) ** 2)
        g = tape.gradient(loss, t)
        t.scatter_sub(tf.IndexedSlices(0.1 * g.values, g.indices))
        return loss

    return function, [t]


@program("f3,4 i3")
def partial_update():
    t = variable("t", 8, 4)

    def function(x, i):
        t.scatter_nd_add(i[:, None], x)
        return tf.gather(t, i)

    return function, [t]


@program("f3")
def sliced_assignment():
    m = variable("m", 5, 3)

    def function(x):
        m[2].assign(x)
        m[0, 1:].assign(x[:2])
        return tf.reduce_sum(m, 0)

    return function, [m]


@program("f4 f4")
def queue_of_features():
    bank = variable("bank", 3, 4, trainable=False)

    def function(q, k):
        out = tf.linalg.matvec(bank, q)
        bank.assign(tf.concat([bank[1:], k[None]], 0))
        return out

    return function, [bank]


@program("f4")
def assignment_in_a_branch():
    best = tf.Variable(0.5, name="best", trainable=False)

    def function(x):
        top = tf.reduce_max(x)
        if top > best:
            best.assign(top)
        return x - best

    return function, [best]


@program("f5")
def assignment_in_a_loop():
    total = tf.Variable(0.0, name="total", trainable=False)

    def function(x):
        for i in tf.range(5):
            total.assign_add(x[i])
            if total > 2.0:
                total.assign(0.0)
        return total.read_value()

    return function, [total]


def keras_layer(spec, make, depth=256):
    """A layer of Keras, built for these arguments."""

    def maker(make=make):
        layer = make()
        shapes = [tuple(int(n) for n in w[1:].split(",")) for w in spec.split()]
        layer.build(*shapes)
        for i, v in enumerate(layer.trainable_variables):
            rng = np.random.default_rng(i)
            v.assign(rng.standard_normal(v.shape) * 0.3)
        if len(shapes) == 1:
            return lambda x: layer(x), [v.value for v in layer.variables]
        return lambda *x: layer(*x), [v.value for v in layer.variables]

    return maker, spec, depth


def keras_step(optimizer):
    """One training step of a two-layer model."""

    def maker():
        w = keras.Variable(np.full((3, 1), 0.2, np.float32), name="w")
        opt = optimizer()
        opt.build([w])

        def function(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((x @ w.value - y) ** 2)
            opt.apply_gradients([(tape.gradient(loss, w.value), w)])
            return loss

        return function, [w.value, *(v.value for v in opt.variables)]

    return maker, "f6,3 f6,1", 1024


L = keras.layers
O = keras.optimizers
MADE = {
    "keras_dense": keras_layer("f3,4", lambda: L.Dense(5, activation="gelu")),
    "keras_conv": keras_layer("f1,6,6,2", lambda: L.Conv2D(3, 3, padding="same"), 512),
    "keras_separable": keras_layer("f1,6,6,2", lambda: L.SeparableConv2D(3, 3), 512),
    "keras_lstm": keras_layer("f2,5,3", lambda: L.LSTM(4, return_sequences=True), 512),
    "keras_gru": keras_layer("f2,5,3", lambda: L.GRU(4), 512),
    "keras_simple_rnn": keras_layer("f2,5,3", lambda: L.SimpleRNN(4, unroll=True), 512),
    "keras_bidirectional": keras_layer("f2,5,3", lambda: L.Bidirectional(L.LSTM(2)), 512),
    "keras_layer_norm": keras_layer("f3,8", lambda: L.LayerNormalization()),
    "keras_batch_norm": keras_layer("f6,3", lambda: L.BatchNormalization()),
    "keras_group_norm": keras_layer("f2,4,4,4", lambda: L.GroupNormalization(2)),
    "keras_attention": keras_layer("f2,4,6 f2,5,6", lambda: L.MultiHeadAttention(2, 3)),
    "keras_einsum_dense": keras_layer("f2,4,6", lambda: L.EinsumDense("abc,cd->abd", (None, 5))),
    "keras_prelu": keras_layer("f3,4", lambda: L.PReLU()),
    "keras_conv_transpose": keras_layer("f1,4,4,2", lambda: L.Conv2DTranspose(3, 3, 2), 512),
    "keras_depthwise": keras_layer("f1,6,6,2", lambda: L.DepthwiseConv2D(3), 512),
    "keras_time_distributed": keras_layer("f2,3,4", lambda: L.TimeDistributed(L.Dense(2))),
    "keras_sgd": keras_step(lambda: O.SGD(0.1, momentum=0.9, nesterov=True)),
    "keras_adam": keras_step(lambda: O.Adam(0.1)),
    "keras_adamw": keras_step(lambda: O.AdamW(0.1, weight_decay=0.01)),
    "keras_rmsprop": keras_step(lambda: O.RMSprop(0.1, centered=True)),
    "keras_adagrad": keras_step(lambda: O.Adagrad(0.1)),
    "keras_adadelta": keras_step(lambda: O.Adadelta(0.1)),
    "keras_nadam": keras_step(lambda: O.Nadam(0.1)),
    "keras_ftrl": keras_step(lambda: O.Ftrl(0.1)),
    "keras_lion": keras_step(lambda: O.Lion(0.1)),
    "keras_schedule": keras_step(
        lambda: O.SGD(O.schedules.ExponentialDecay(0.1, 10, 0.9), clipnorm=1.0)
    ),
}
for name, (make, spec, depth) in MADE.items():
    CASES[f"programs.{name}"] = Case(make, spec, depth)
    MAKERS.add(f"programs.{name}")
