"""Loops and branches: autograph, map_fn and its relatives, TensorArrays, custom gradients."""

import tensorflow as tf

from tests.conformance.stablehlo_cases.arguments import Case, lines

CASES: dict[str, Case] = {}


def case(spec, depth=64, **more):
    def add(function):
        CASES[f"control.{function.__name__}"] = Case(function, spec, depth, **more)
        return function

    return add


@case("f4")
def python_if(x):
    if x.shape[0] > 3:
        return x * 2
    return x


@case("f4")
def tensor_if(x):
    if tf.reduce_sum(x) > 0:
        y = x * 2
    else:
        y = tf.sin(x)
    return y


@case("f4")
def early_return(x):
    if tf.reduce_max(x) > 10.0:
        return x * 3
    if tf.reduce_min(x) < -0.2:
        return x - 1
    return tf.exp(x)


@case("f4")
def elif_chain(x):
    total = tf.reduce_sum(x)
    if total > 2:
        y = x
    elif total > 0:
        y = x * x
    elif total > -2:
        y = tf.sin(x)
    else:
        y = -x
    return y + 1


@case("f4")
def nested_if(x):
    y = x
    if tf.reduce_sum(x) > 0:
        if x[0] > 0:
            y = x * 2
        else:
            y = x * 3
    else:
        y = x[::-1]
    return y


@case("f4")
def for_range(x):
    for i in tf.range(5):
        x = x * 0.9 + tf.cast(i, tf.float32)
    return x


@case("f5,3")
def for_rows(x):
    total = tf.zeros([3])
    for row in x:
        total = tf.tanh(total + row)
    return total


@case("f4")
def for_with_break(x):
    for i in tf.range(10):
        if i > 4:
            break
        x = tf.sin(x)
    return x


@case("f4")
def for_with_traced_break(x):
    for _ in tf.range(10):
        x = x * 1.3
        if tf.reduce_sum(tf.abs(x)) > 8.0:
            break
    return x


@case("f4")
def for_with_continue(x):
    total = tf.zeros([])
    for i in tf.range(6):
        if i % 2 == 0:
            continue
        total += tf.reduce_sum(x) * tf.cast(i, tf.float32)
    return total


@case("f4")
def for_with_two_breaks(x):
    found = -1
    for i in tf.range(10):
        x = x * 1.2
        if tf.reduce_sum(tf.abs(x)) > 6.0:
            found = i
            break
        if x[0] > 5.0:
            break
    return x, found


@case("f4,4")
def for_over_rows_with_break_and_continue(x):
    total = tf.zeros([4])
    for row in x:
        if row[0] < -1.5:
            continue
        if row[1] > 2.5:
            break
        total += row * row
    return total


@case("f4")
def while_counter(x):
    i = 0
    while tf.less(i, 4):
        x = x + tf.cos(x)
        i += 1
    return x


@case("p4")
def while_traced(x):
    while tf.reduce_sum(x) < 20.0:
        x = x * 1.5
    return x


@case("p4")
def while_with_break(x):
    i = tf.constant(0)
    while tf.constant(True):
        x = x * 1.1
        i += 1
        if i >= 5:
            break
    return x


@case("p")
def collatz_like(x):
    steps = 0
    while x > 1.0:
        x = x * 0.5 if tf.math.floormod(steps, 2) == 0 else x * 0.9
        steps += 1
    return x, steps


@case("f3,3")
def nested_for(x):
    total = tf.zeros([])
    for i in tf.range(3):
        for j in tf.range(3):
            if i != j:
                total += x[i, j] * tf.cast(i - j, tf.float32)
    return total


@case("f3,4")
def nested_traced_trip_counts(x):
    total = tf.zeros([4])
    for i in tf.range(3):
        for _ in tf.range(i + 1):
            total = tf.sin(total + x[i])
    return total


@case("f4")
def nested_while_in_for(x):
    for _ in tf.range(3):
        while tf.reduce_sum(tf.abs(x)) < 3.0:
            x = x * 1.7
        x = x / 3
    return x


@case("f4 j")
def trips_as_an_argument(x, n):
    for _ in tf.range(n):
        x = tf.sin(x) + 0.1
    return x


@case("f6")
def python_list_in_static_loop(x):
    parts = []
    for i in range(3):
        parts.append(x[i : i + 4] * i)
    return tf.stack(parts)


@case("f5,3")
def tensor_array(x):
    written = tf.TensorArray(tf.float32, size=5)
    for i in tf.range(5):
        written = written.write(i, tf.sin(x[i]))
    return written.stack()


@case("f5,3")
def tensor_array_grows(x):
    written = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
    for i in tf.range(tf.shape(x)[0]):
        written = written.write(i, x[i] * 2)
    return written.stack()


@case("f5,3")
def tensor_array_unstack_read(x):
    read = tf.TensorArray(tf.float32, 5, clear_after_read=False).unstack(x)
    total = tf.zeros([3])
    for i in tf.range(5):
        total += read.read(i) * read.read(4 - i)
    return total


@case("f6,3")
def tensor_array_gather(x):
    return tf.TensorArray(tf.float32, 6).unstack(x).gather([4, 0, 2])


@case("f4,3")
def tensor_array_concat(x):
    written = tf.TensorArray(tf.float32, size=4, element_shape=[3])
    for i in tf.range(4):
        written = written.write(i, x[3 - i])
    return written.concat() if False else tf.reshape(written.stack(), [-1])


@case("f4,2,3")
def tensor_array_of_matrices_concat(x):
    written = tf.TensorArray(tf.float32, size=4, element_shape=[2, 3], infer_shape=True)
    for i in tf.range(4):
        written = written.write(i, x[i])
    return written.concat()


@case("f6,2")
def tensor_array_split(x):
    return tf.TensorArray(tf.float32, 3, element_shape=[2, 2]).split(x, [2, 2, 2]).stack()


@case("f6,2")
def tensor_array_scatter(x):
    return tf.TensorArray(tf.float32, 6).scatter([5, 0, 1, 2, 4, 3], x).stack()


@case("f4")
def fibonacci_array(x):
    out = tf.TensorArray(tf.float32, size=6, clear_after_read=False)
    out = out.write(0, x).write(1, x * 2)
    for i in tf.range(2, 6):
        out = out.write(i, out.read(i - 1) + out.read(i - 2))
    return out.stack()


@case("f5,3 f3,3 f3,3", 256)
def rnn_by_hand(x, w, u):
    state = tf.zeros([3])
    states = tf.TensorArray(tf.float32, size=5)
    for t in tf.range(5):
        state = tf.tanh(tf.linalg.matvec(w, x[t]) + tf.linalg.matvec(u, state))
        states = states.write(t, state)
    return states.stack(), state


@case("m3,3 f3", 1024)
def conjugate_gradients(a, b):
    x = tf.zeros_like(b)
    r = b
    p = r
    rs = tf.tensordot(r, r, 1)
    for _ in tf.range(2):
        ap = tf.linalg.matvec(a, p)
        alpha = rs / tf.tensordot(p, ap, 1)
        x = x + alpha * p
        r = r - alpha * ap
        new = tf.tensordot(r, r, 1)
        p = r + new / rs * p
        rs = new
    return x


@case("p4")
def newton_sqrt(a):
    x = a
    for _ in tf.range(20):
        x = 0.5 * (x + a / x)
    return x


@case("p4")
def newton_until_converged(a):
    x = a
    while tf.reduce_max(tf.abs(x * x - a)) > 1e-4:
        x = 0.5 * (x + a / x)
    return x


@case("m4,4 f4", 4096)
def power_iteration(a, v):
    value = tf.constant(0.0)
    for _ in tf.range(10):
        v = tf.linalg.matvec(a, v)
        value = tf.norm(v)
        v = v / value
    return value


@case("f3,8")
def greedy_decode(logits):
    """Tokens until the end token, in a buffer."""
    tokens = tf.TensorArray(tf.int32, size=3)
    done = tf.constant(False)
    for i in tf.range(3):
        token = tf.argmax(logits[i], output_type=tf.int32)
        token = tf.where(done, 0, token)
        done = tf.logical_or(done, token == 3)
        tokens = tokens.write(i, token)
    return tokens.stack()


@case("f6")
def bubble_step(x):
    for i in tf.range(5):
        a, b = x[i], x[i + 1]
        if a > b:
            x = tf.tensor_scatter_nd_update(x, [[i], [i + 1]], [b, a])
    return x


@case("f4")
def assertions(x):
    tf.debugging.assert_equal(tf.shape(x)[0], 4)
    tf.debugging.assert_all_finite(x, "bad")
    with tf.control_dependencies([tf.debugging.assert_less(x, 100.0)]):
        return tf.identity(x) * 2


@case("f4")
def python_assert(x):
    assert x.shape[0] == 4
    return tf.debugging.check_numerics(x, "x") + 1


@case("f4")
def printing(x):
    tf.print("x is", x)
    return x + 1


@case("f4")
def logical_python(x):
    return x * 2 if (x[0] > 0 and x[1] > 0) or not x[2] > 0 else x


@case("f3,4")
def inner_tf_function(x):
    @tf.function
    def inner(y, n):
        return inner_two(y) * n

    @tf.function
    def inner_two(y):
        return tf.sin(y) + 1

    return inner(x, 2.0) + inner(x[:1], 3.0)


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
    ("cond_lambda", "f4", lambda x: tf.cond(x[0] > 0, lambda: x, lambda: -x)),
    ("case", "f4", lambda x: tf.case([(x[0] > 1, lambda: x), (x[0] > 0, lambda: x * 2)],
                                     default=lambda: x * 3)),
    ("switch_case", "f4 j", lambda x, i: tf.switch_case(i, [lambda: x, lambda: -x, lambda: x * x])),
    ("while_maximum_iterations", "f4", lambda x: tf.while_loop(
        lambda a: tf.reduce_sum(a) < 100.0, lambda a: (a * 1.1,), [x], maximum_iterations=6)[0]),
    ("while_vectors", "f4 f4", lambda x, y: tf.while_loop(
        lambda i, a, b: i < 3, lambda i, a, b: (i + 1, b, a + tf.sin(b)), [0, x, y])[1:]),
    ("while_structures", "f4", lambda x: tf.while_loop(
        lambda s: s["i"] < 3, lambda s: [{"i": s["i"] + 1, "x": tf.sin(s["x"])}],
        [{"i": 0, "x": x}])[0]["x"]),
    ("while_unrolled_bound", "f4", lambda x: tf.while_loop(
        lambda i, a: i < tf.shape(x)[0], lambda i, a: (i + 1, a * 2), [0, x])[1]),
    ("map_fn", "f5,3", lambda x: tf.map_fn(lambda r: r / tf.reduce_sum(tf.abs(r)), x)),
    ("map_fn_two", "f5,3 f5", lambda x, y: tf.map_fn(
        lambda p: p[0] * p[1], (x, y), fn_output_signature=tf.float32)),
    ("map_fn_many_outputs", "f5,3", lambda x: tf.map_fn(
        lambda r: (tf.reduce_sum(r), r * 2), x, fn_output_signature=(tf.float32, tf.float32))),
    ("map_fn_of_ints", "i5", lambda x: tf.map_fn(lambda i: i * i, x)),
    ("map_fn_with_cond", "f5", lambda x: tf.map_fn(
        lambda a: tf.cond(a > 0, lambda: a, lambda: a * 0.1), x)),
    ("map_fn_nested", "f3,4", lambda x: tf.map_fn(
        lambda r: tf.map_fn(lambda a: a * tf.reduce_sum(r), r), x)),
    ("map_fn_of_range", "f5", lambda x: tf.map_fn(
        lambda i: tf.reduce_sum(x[: i + 1]) if False else x[i] * 2, tf.range(5),
        fn_output_signature=tf.float32)),
    ("scan", "f5,3", lambda x: tf.scan(lambda a, r: tf.tanh(a + r), x)),
    ("scan_initializer", "f5,3 f3", lambda x, s: tf.scan(lambda a, r: a * 0.5 + r, x, s)),
    ("scan_reverse", "f5", lambda x: tf.scan(lambda a, r: a * 0.5 + r, x, reverse=True)),
    ("scan_pairs", "f5 f5", lambda x, y: tf.scan(
        lambda s, e: (s[0] + e[0], s[1] * e[1]), (x, y), (0.0, 1.0))),
    ("discounted_returns", "f6", lambda r: tf.scan(
        lambda a, x: x + 0.9 * a, r, 0.0, reverse=True)),
    ("foldl", "f5,3", lambda x: tf.foldl(lambda a, r: a * r + 1, x)),
    ("foldr", "f5,3", lambda x: tf.foldr(lambda a, r: tf.sin(a) + r, x, tf.zeros([3]))),
    ("vectorized_map", "f5,3", lambda x: tf.vectorized_map(lambda r: tf.sin(r) * r[0], x)),
    ("vectorized_matmul", "f5,3,4 f4", lambda x, y: tf.vectorized_map(
        lambda m: tf.linalg.matvec(m, y), x)),
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
    ("grouped", "f3", lambda x: tf.nest.map_structure(lambda a: a * 2, {"a": x, "b": [x, x + 1]})),
    ("name_scopes", "f3", lambda x: tf.identity(x + 1, name="scoped")),
]  # fmt: skip
CASES.update(lines("control", ROWS))
