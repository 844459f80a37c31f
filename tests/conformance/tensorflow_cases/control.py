"""Branches and loops: autograph, tf.cond, tf.while_loop, map_fn and its relatives."""

import tensorflow as tf

from tests.conformance.stablehlo_cases.arguments import Case, lines, listing

CASES: dict[str, Case] = {}
case = listing(CASES, "control")


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
    ("grouped", "f3", lambda x: tf.nest.map_structure(lambda a: a * 2, {"a": x, "b": [x, x + 1]})),
    ("name_scopes", "f3", lambda x: tf.identity(x + 1, name="scoped")),
]  # fmt: skip
CASES.update(lines("control", ROWS))
