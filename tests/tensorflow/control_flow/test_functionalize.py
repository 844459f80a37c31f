"""Control flow of TensorFlow 1, against a session: values, gradients and vmap."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import anyjax
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=8)

tf1 = tf.compat.v1
X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


@pytest.fixture(autouse=True)
def old_control_flow():
    tf1.disable_control_flow_v2()
    yield
    tf1.enable_control_flow_v2()


def assert_agrees(build, *args):
    """The Model of a graph, checked against a session: values, gradients and vmap."""
    graph = tf1.Graph()
    with graph.as_default(), tf1.Session(graph=graph) as session:
        inputs = [tf1.placeholder(x.dtype, x.shape, name=f"x{i}") for i, x in enumerate(args)]
        out = tf.identity(build(*inputs), name="out")
        feeds = dict(zip(inputs, args))
        want = session.run(out, feeds)
        smooth = out.dtype.is_floating
        slopes = tf1.gradients(tf.reduce_sum(out**2), inputs) if smooth else []
        slopes = [tf.zeros_like(x) if g is None else g for x, g in zip(inputs, slopes)]
        slopes = session.run(slopes, feeds)
    kinds = {node.op for node in graph.as_graph_def().node}
    assert kinds & {"Switch", "Enter"}, "the graph has no control flow of TensorFlow 1"
    names = [x.op.name for x in inputs]
    model = anyjax.from_tensorflow(graph.as_graph_def(), inputs=names, outputs="out")
    call = lambda *xs: model.apply(model.params, *xs)
    assert_close([model(*args)], [want], reduction=64)
    assert_close([call(*args)], [want], reduction=64)
    if smooth:
        loss = lambda xs: jnp.sum(call(*xs) ** 2)
        assert_close(jax.jit(jax.grad(loss))([*args]), slopes, reduction=64)
    stacked = [np.stack([x, (x * 1.125).astype(x.dtype), -x]) for x in args]
    each = [call(*xs) for xs in zip(*stacked)]
    assert_close([jax.vmap(call)(*stacked)], [np.stack(each)], reduction=64)
    return model


def power(x):
    return tf.while_loop(lambda i, a: i < 5, lambda i, a: (i + 1, a * tf.sin(a)), [0, x])[1]


def grown(x):
    return tf.while_loop(lambda a: tf.reduce_sum(a) < 10.0, lambda a: (a * 1.5 + 0.1,), [abs(x)])[0]


def nested(x):
    def row(i, a):
        inner = lambda j, b: (j + 1, b * tf.cos(x) + tf.cast(i, tf.float32))
        return i + 1, tf.while_loop(lambda j, b: j < i, inner, [0, a])[1]

    return tf.while_loop(lambda i, a: i < 4, row, [0, x])[1]


def several_exits(x):
    outs = tf.while_loop(
        lambda i, a, b, c: i < 3, lambda i, a, b, c: (i + 1, b, a * 2 + c, c), [0, x, -x, x + 1]
    )
    return outs[1] + 3 * outs[2] - outs[3] + tf.cast(outs[0], tf.float32)


def branch_in_loop(x):
    def body(i, a):
        return i + 1, tf.cond(tf.equal(i % 2, 0), lambda: a * 2, lambda: tf.sin(a) + x)

    return tf.while_loop(lambda i, a: i < 5, body, [0, x])[1]


def loop_in_branch(x):
    return tf.cond(tf.reduce_sum(x) > 0, lambda: power(x) + 1, lambda: nested(-x))


def nested_branches(x):
    inner = lambda: tf.cond(x[0, 0] > 0, lambda: x * 3, lambda: x - tf.exp(x))
    return tf.cond(tf.reduce_sum(x) > -100, inner, lambda: x)


def branches_in_turn(x):
    large = tf.reduce_sum(x) > 0
    first = tf.cond(large, lambda: x * 2, lambda: tf.sin(x))
    second = tf.cond(x[0, 1] > 0, lambda: first + 1, lambda: first - 1)
    return tf.cond(large, lambda: second * first, lambda: second + x)


def several_outputs(x):
    a, b = tf.cond(tf.reduce_sum(x) > 0, lambda: (x, x * 2), lambda: (tf.cos(x), x - 1))
    return a * b


def which(x):
    first = x[0, 0]
    return tf.case(
        [(first > 1.0, lambda: x), (first > 0.1, lambda: x * x), (first > -1.0, lambda: x + 2)],
        default=lambda: -x,
        exclusive=False,
    )


def recurrent(x):
    """As dynamic_rnn: it reads one array and writes another."""
    inputs = tf.TensorArray(tf.float32, size=3).unstack(x)
    outputs = tf.TensorArray(tf.float32, size=3, element_shape=[4])

    def body(t, h, out):
        h = tf.tanh(inputs.read(t) + 0.5 * h)
        return t + 1, h, out.write(t, h)

    _, last, out = tf.while_loop(lambda t, *_: t < 3, body, [0, tf.zeros([4]), outputs])
    return out.stack() + last


def growing(x):
    empty = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
    body = lambda t, out: (t + 1, out.write(t, x[t] * 2))
    return tf.while_loop(lambda t, _: t < 3, body, [0, empty])[1].stack()


def pieces(x):
    array = tf.TensorArray(tf.float32, size=3).split(tf.reshape(x, [12]), [4, 4, 4])
    body = lambda t, out: (t + 1, out.write(t, array.read(2 - t)))
    outputs = tf.TensorArray(tf.float32, size=3, element_shape=[4], clear_after_read=False)
    out = tf.while_loop(lambda t, _: t < 3, body, [0, outputs])[1]
    return out.concat() + tf.cast(out.size(), tf.float32) * tf.reduce_sum(out.gather([2, 0]))


@pytest.mark.parametrize(
    "build",
    [
        power,
        grown,
        nested,
        several_exits,
        branch_in_loop,
        loop_in_branch,
        nested_branches,
        branches_in_turn,
        several_outputs,
        which,
        recurrent,
        growing,
        pieces,
        lambda x: tf.map_fn(lambda row: tf.sin(row) * 2, x),
        lambda x: tf.map_fn(lambda r: tf.map_fn(lambda v: v * tf.sin(v), r), x),
        lambda x: tf.scan(lambda carry, row: tf.sin(row) * 2 + carry, x),
        lambda x: tf.foldl(lambda carry, row: carry * row, x),
        lambda x: tf.cond(tf.shape(x)[0] > 2, lambda: x[:2], lambda: x),
    ],
)
def test_control_flow(build):
    assert_agrees(build, X)
