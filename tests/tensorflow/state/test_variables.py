"""Variables: read, assigned, handed to functions."""

import numpy as np
import pytest
import tensorflow as tf

import tojax
from tojax.errors import StateDropped, WrongArguments

X = np.arange(3, dtype=np.float32)


class Counter(tf.Module):
    def __init__(self):
        self.w = tf.Variable(2.0, name="w")
        self.count = tf.Variable(0, name="count", trainable=False)

    def __call__(self, x):
        self.count.assign_add(1)
        return x * self.w * tf.cast(self.count, tf.float32)


def test_state():
    model = tojax.from_tensorflow(Counter())
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

    model = tojax.from_tensorflow(train, X)
    loss, new = model.apply(model.params, X, mutable=True)
    assert float(loss) == float(train(tf.constant(X)))
    np.testing.assert_allclose(new["w"], module.w, rtol=1e-6)


def test_mistakes():
    model = tojax.from_tensorflow(Counter())
    with pytest.raises(WrongArguments, match="missing variable 'w'"):
        model.apply({}, X)
    with pytest.raises(WrongArguments, match="unknown variable"):
        model.apply({**model.params, "other": X}, X)
