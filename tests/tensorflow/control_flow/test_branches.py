"""Branches and loops of graphs: values, gradients and vmap."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import anyjax
from tests.tensorflow.agree import assert_agrees

pytestmark = pytest.mark.sample(every=8)

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


def grown(x):
    """Doubled as often as its size asks for."""
    return tf.while_loop(lambda a: tf.reduce_sum(a) < 10.0, lambda a: (a * 1.5 + 0.1,), [abs(x)])[0]


def drawn(x):
    return tf.while_loop(
        lambda i, a: i < 3, lambda i, a: (i + 1, a + tf.random.uniform(a.shape)), [0, x]
    )[1]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: x * 2, lambda: tf.sin(x)),
        lambda x: tf.switch_case(
            tf.cast(tf.reduce_sum(x) > 0, tf.int32) + 3, [lambda: x, lambda: x * x, lambda: -x]
        ),
        lambda x: tf.while_loop(lambda i, a: i < 5, lambda i, a: (i + 1, a * tf.sin(a)), [0, x])[1],
        lambda x: tf.map_fn(lambda row: tf.sin(row) * 2, x),
        lambda x: tf.scan(lambda carry, row: tf.sin(row) * 2 + carry, x),
        lambda x: tf.foldl(lambda carry, row: carry * row, x),
        lambda x: tf.vectorized_map(lambda row: tf.reduce_sum(row) * row, x),
        grown,
    ],
)
def test_control_flow(function):
    assert_agrees(function, X)


def test_a_condition_that_is_known_leaves_one_branch():
    model = assert_agrees(lambda x: tf.cond(tf.shape(x)[0] > 2, lambda: x[:2], lambda: x), X)
    assert "cond" not in str(jax.make_jaxpr(lambda x: model.apply({}, x))(X))


def test_second_derivatives_of_a_loop_of_unknown_length():
    model = anyjax.from_tensorflow(lambda x: tf.reduce_sum(grown(x) ** 2), X)
    loss = lambda x: model.apply({}, x)
    forward, reverse = jax.hessian(loss)(X), jax.jacrev(jax.jacrev(loss))(X)
    np.testing.assert_allclose(forward, reverse, rtol=1e-5)
    inputs = tf.constant(X)
    with tf.GradientTape(persistent=True) as outer:
        outer.watch(inputs)
        with tf.GradientTape() as inner:
            inner.watch(inputs)
            out = tf.reduce_sum(grown(inputs) ** 2)
        first = inner.gradient(out, inputs)
    want = outer.jacobian(first, inputs, experimental_use_pfor=False)
    np.testing.assert_allclose(reverse, want, rtol=1e-4, atol=1e-4)


def test_keys_in_a_loop_differ():
    model = anyjax.from_tensorflow(drawn, X)
    first, second = (model(X, rng=jax.random.key(i)) for i in range(2))
    np.testing.assert_array_equal(first, model(X, rng=jax.random.key(0)))
    assert (np.asarray(first) != np.asarray(second)).all()
    steps = np.asarray(first - X).reshape(-1)
    assert steps.min() > 0
    assert steps.max() < 3
    with pytest.raises(anyjax.errors.MissingRng, match="RandomUniform"):
        model(X)


class Counter(tf.Module):
    def __init__(self):
        self.total = tf.Variable(tf.zeros([3, 4]), name="total")

    def __call__(self, x):
        def body(i, a):
            self.total.assign_add(a)
            return i + 1, a * 2

        out = tf.while_loop(lambda i, a: i < 3, body, [0, x])[1]
        tf.cond(
            tf.reduce_sum(x) > 100,
            lambda: self.total.assign(x),
            lambda: self.total.assign(-x + self.total),
        )
        return out + self.total


def test_variables_that_loops_and_branches_assign():
    module = Counter()
    model = anyjax.from_tensorflow(module)
    out, new = model.apply(model.params, X, mutable=True)
    np.testing.assert_allclose(out, module(tf.constant(X)), rtol=1e-6)
    np.testing.assert_allclose(new["total"], module.total, rtol=1e-6)
