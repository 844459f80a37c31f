"""Parts of a variable: reading rows and writing them."""

import numpy as np
import pytest
import tensorflow as tf

import anyjax

pytestmark = pytest.mark.sample(every=8)

raw = tf.raw_ops
X = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]], np.float32)
ROWS = np.array([0, 2], np.int32)
NEW = np.array([[1.0, -2.0, 4.0], [8.0, 2.0, 0.5]], np.float32)
CELLS = np.array([[0, 1], [2, 2]], np.int32)
ONE = np.array([2.0, 90.0], np.float32)


def assert_same_update(use, *args):
    """Compares the result of ``use(variable, *args)``, and the new value of the variable."""
    variable = tf.Variable(X)
    model = anyjax.from_tensorflow(lambda *args: use(variable, *args), *args)
    got, state = model.apply(model.params, *args, mutable=True)
    want = use(variable, *map(tf.constant, args))
    if want is not None:
        np.testing.assert_allclose(got, want, rtol=1e-6)
    np.testing.assert_allclose(state.get("Variable", X), variable, rtol=1e-6)


@pytest.mark.parametrize("name", ["Update", "Add", "Sub", "Mul", "Div", "Min", "Max"])
def test_rows(name):
    op = getattr(raw, f"ResourceScatter{name}")

    def use(v, i, new):
        op(resource=v.handle, indices=i, updates=new)
        return v.read_value()

    assert_same_update(use, ROWS, NEW)
    assert_same_update(use, ROWS[::-1].reshape(2, 1), NEW[:, None])
    assert_same_update(use, ROWS, np.float32(2))


@pytest.mark.parametrize("name", ["Update", "Add", "Sub", "Min", "Max"])
def test_positions(name):
    op = getattr(raw, f"ResourceScatterNd{name}")

    def use(v, i, new):
        op(ref=v.handle, indices=i, updates=new)
        return v.read_value()

    assert_same_update(use, CELLS, ONE)
    assert_same_update(use, CELLS[:, :1], NEW)


def test_reading():
    assert_same_update(lambda v, i: tf.gather(v, i), ROWS)
    assert_same_update(lambda v, i: v.sparse_read(i), ROWS)
    assert_same_update(lambda v, i: v.gather_nd(i), CELLS)
    assert_same_update(lambda v, i: tf.nn.embedding_lookup(v, i), ROWS)
    assert_same_update(
        lambda v, i: tf.gather(v, i, batch_dims=1), np.array([[0], [2], [1]], np.int32)
    )


def test_slices():
    def use(v, i, new):
        v[1:, ::2].assign(new[:, :2])
        v[i].assign(new[0])
        v[i, 2].assign(5.0)
        return v * 2

    assert_same_update(use, np.int32(1), NEW)
