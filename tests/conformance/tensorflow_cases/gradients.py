"""Gradients inside of a graph: custom ones, tapes, tf.gradients, recomputation."""

import tensorflow as tf

from tests.conformance.stablehlo_cases.arguments import Case, lines, listing

CASES: dict[str, Case] = {}
case = listing(CASES, "gradients")


@tf.custom_gradient
def clipped(x):
    return x, lambda dy: tf.clip_by_value(dy, -0.1, 0.1)


@tf.custom_gradient
def log1pexp(x):
    e = tf.exp(x)
    return tf.math.log(1 + e), lambda dy: dy * (1 - 1 / (1 + e))


@tf.custom_gradient
def straight_through(x):
    return tf.round(x), lambda dy: dy


@tf.custom_gradient
def two_of_two(a, b):
    def grad(da, db):
        return da * b + db, da * a - db

    return (a * b, a - b), grad


@case("f4")
def two_custom_gradients(x):
    return clipped(x) * 3 + log1pexp(x)


@case("f4")
def custom_gradient_in_loop(x):
    for _ in tf.range(3):
        x = log1pexp(x)
    return x


@case("f4")
def custom_gradient_in_while(x):
    while tf.reduce_sum(x) < 12.0:
        x = log1pexp(x) + 1
    return x


@case("f4")
def custom_gradient_in_cond(x):
    return tf.cond(x[0] > 0, lambda: log1pexp(x), lambda: clipped(x) * 2)


def gradient_inside(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(tf.sin(x) * x)
    return tape.gradient(y, x)


def second_gradient(x):
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = tf.reduce_sum(x**3)
        g = inner.gradient(y, x)
    return outer.gradient(g, x)


def jacobian_inside(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.sin(x) * tf.reduce_sum(x)
    return tape.jacobian(y, x)


def batch_jacobian_inside(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.sin(x) * tf.reduce_sum(x, 1, keepdims=True)
    return tape.batch_jacobian(y, x)


def jvp_inside(x, v):
    with tf.autodiff.ForwardAccumulator(x, v) as acc:
        y = tf.sin(x) * x
    return acc.jvp(y)


def gradient_through_loop(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.while_loop(lambda i, a: i < 4, lambda i, a: (i + 1, tf.sin(a) * 1.5), [0, x])[1]
        total = tf.reduce_sum(y)
    return tape.gradient(total, x)


def gradient_through_traced_loop(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.while_loop(lambda a: tf.reduce_sum(a) < 20.0, lambda a: (a * 1.5,), [x])[0]
        total = tf.reduce_sum(y * y)
    return tape.gradient(total, x)


def gradient_through_cond(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.cond(x[0] > 0, lambda: tf.sin(x), lambda: x * x)
        total = tf.reduce_sum(y)
    return tape.gradient(total, x)


def gradient_penalty(x, w):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(tf.tanh(x @ w))
    return tf.reduce_mean((tf.norm(tape.gradient(y, x), axis=1) - 1) ** 2)


def descent(x):
    """Minimises by gradients that are taken in a loop."""
    for _ in tf.range(5):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum((x - 1) ** 2 * x**2)
        x = x - 0.05 * tape.gradient(y, x)
    return x


def gradient_of_map(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        total = tf.reduce_sum(tf.map_fn(lambda r: tf.sin(r) * tf.reduce_sum(r), x))
    return tape.gradient(total, x)


case("f4")(gradient_inside)
case("f4")(second_gradient)
case("f4")(jacobian_inside)
case("f3,4")(batch_jacobian_inside)
case("f4 f4")(jvp_inside)
case("f4")(gradient_through_loop)
case("p4", 256)(gradient_through_traced_loop)
case("f4")(gradient_through_cond)
case("f3,4 f4,2", 512)(gradient_penalty)
case("f4", 512)(descent)
case("f3,4")(gradient_of_map)

ROWS = [
    ("recompute_grad", "f4", lambda x: tf.recompute_grad(lambda y: tf.sin(y) * tf.exp(y))(x)),
    ("recompute_twice", "f4", lambda x: tf.recompute_grad(tf.sin)(
        tf.recompute_grad(lambda y: y * tf.exp(y))(x)), 512),
    ("grad_pass_through", "f4", lambda x: tf.grad_pass_through(tf.sign)(x) * 2),
    ("straight_through", "f4", lambda x: straight_through(x * 3) * x),
    ("custom_gradient_pair", "f4 f4", lambda a, b: two_of_two(a, b)),
    ("custom_gradient_map", "f4", lambda x: tf.map_fn(log1pexp, x)),
    ("gradients_symbolic", "f4", lambda x: tf.gradients(tf.reduce_sum(tf.sin(x) ** 2), x)[0]),
    ("gradients_weighted", "f4 f4", lambda x, w: tf.gradients(tf.tanh(x), x, grad_ys=w)[0]),
    ("gradients_of_two", "f4 f4", lambda x, y: tf.gradients(x * y * x, [x, y])),
    ("hessians", "f4", lambda x: tf.hessians(tf.reduce_sum(tf.sin(x) * x[0]), x)[0]),
    ("gradients_of_matmul", "f3,4 f4,2", lambda a, b: tf.gradients(tf.tanh(a @ b), [a, b])),
    ("gradients_of_softmax_loss", "f3,4", lambda x: tf.gradients(
        tf.nn.sparse_softmax_cross_entropy_with_logits([0, 1, 2], x), x)[0]),
    ("gradients_of_gather", "f6,2 j4", lambda x, i: tf.convert_to_tensor(
        tf.gradients(tf.gather(x, i) ** 2, x)[0])),
]  # fmt: skip
CASES.update(lines("gradients", ROWS))
