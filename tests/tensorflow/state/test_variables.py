"""Variables: read, assigned, handed to functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import anyjax
from anyjax.errors import StateDropped, WrongArguments
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=8)

X = np.arange(3, dtype=np.float32)


class Counter(tf.Module):
    def __init__(self):
        self.w = tf.Variable(2.0, name="w")
        self.count = tf.Variable(0, name="count", trainable=False)

    def __call__(self, x):
        self.count.assign_add(1)
        return x * self.w * tf.cast(self.count, tf.float32)


def test_state():
    model = anyjax.from_tensorflow(Counter())
    assert [*model.params] == ["w"] and [*model.state] == ["count"]
    out, state = model.apply(model.params, X, mutable=True)
    assert out.tolist() == [0, 2, 4] and int(state["count"]) == 1
    out, state = model.with_state(state).apply(model.params, X, mutable=True)
    assert out.tolist() == [0, 4, 8] and int(state["count"]) == 2
    with pytest.warns(StateDropped, match="count"):
        model(X)


def test_a_step_of_training():
    module = Counter()

    @tf.function
    def train(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((x * module.w) ** 2)
        module.w.assign_sub(0.1 * tape.gradient(loss, module.w))
        return loss

    model = anyjax.from_tensorflow(train, X)
    loss, new = model.apply(model.params, X, mutable=True)
    assert float(loss) == float(train(tf.constant(X)))
    np.testing.assert_allclose(new["w"], module.w, rtol=1e-6)


def test_mistakes():
    model = anyjax.from_tensorflow(Counter())
    with pytest.raises(WrongArguments, match="missing variable 'w'"):
        model.apply({}, X)
    with pytest.raises(WrongArguments, match="unknown variable"):
        model.apply({**model.params, "other": X}, X)


def assigned(v, w, x):
    return v.assign(x * w) * v * x


def added(v, w, x):
    return v.assign_add(w) * w


def in_a_loop(v, w, x):
    for _ in tf.range(3):
        v.assign(v * x[0] + w)
        w.assign_add(tf.sin(v))
    return v * w


def in_a_sum(v, w, x):
    total = tf.zeros_like(x)
    for _ in tf.range(3):
        v.assign_sub(x * w)
        total += v * x
    return total


def in_a_branch(v, w, x):
    if tf.reduce_sum(x) > 0:
        v.assign(w * x)
    else:
        w.assign(v)
    return v * v * w * x


def in_a_call(v, w, x):
    tf.function(lambda y: v.assign(y * w))(x)
    return v * w * x


def with_a_slice(v, w, x):
    v[1:2].assign(x[:1] * 2)
    return v * v * w


def with_slices_before_and_after(v, w, x):
    product = v * x
    v[:, ...].assign(w)
    v[-1].assign(x[0])
    return product + v * w * x


def with_rows(v, w, x):
    v.scatter_add(tf.IndexedSlices(x[:2], tf.constant([2, 0])))
    w.scatter_nd_update([[1]], x[:1])
    return tf.gather(v, [2, 2, 0]) * w + tf.gather_nd(w, [[0], [1], [1]])


WRITING = [in_a_loop, in_a_sum, in_a_branch, in_a_call, with_a_slice, with_slices_before_and_after]
WRITING += [with_rows, assigned, added]


@pytest.mark.parametrize("function", WRITING)
@pytest.mark.parametrize("sign", [1, -1])
def test_gradients_of_variables_that_are_assigned(function, sign):
    """A tape sees which variable is read, not what was assigned to it."""

    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            self.v = tf.Variable([1.0, 2.0, -1.0], name="v")
            self.w = tf.Variable([0.5, 0.25, 2.0], name="w")

        @tf.function
        def __call__(self, x):
            return tf.reduce_sum(tf.cos(function(self.v, self.w, x)))

    module, x = Module(), sign * np.array([0.5, 2.0, 1.5], np.float32)
    model = anyjax.from_tensorflow(module, x)
    loss = lambda params, x: model.apply(params, x, mutable=True)[0]
    got = jax.jit(jax.grad(loss, (0, 1)))(model.params, x)
    constant = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(constant)
        out = module(constant)
    want = tape.gradient(out, [module.v, module.w, constant], unconnected_gradients="zero")
    want = [tf.convert_to_tensor(g).numpy() for g in want]
    assert_close([got[0]["v"], got[0]["w"], got[1]], want, reduction=64)


def test_what_was_assigned_is_differentiated_as_a_result():
    """TensorFlow has no such gradient: the new value is no result there."""
    v = tf.Variable([1.0, 2.0])
    model = anyjax.from_tensorflow(tf.function(lambda x: v.assign_add(x * x)), np.ones(2, "f4"))
    written = lambda x: sum(model.apply(model.params, x, mutable=True)[1].values()).sum()
    assert jax.grad(written)(jnp.array([3.0, 4.0])).tolist() == [6, 8]
