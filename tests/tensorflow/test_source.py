"""Kinds of Keras models as sources: modes, draws, parameters, training, writing back."""

import jax
import jax.numpy as jnp
import keras
import numpy as np
import optax
import pytest
import tensorflow as tf
from keras import layers as L

import anyjax
from anyjax.errors import StateDropped, Unsupported, WrongArguments
from tests.tolerance import assert_close

RNG = np.random.default_rng(0)
X = RNG.standard_normal((8, 6)).astype(np.float32)


@pytest.fixture(autouse=True)
def _seeds():
    keras.utils.set_random_seed(0)


def functional() -> keras.Model:
    left, right = keras.Input((6,), name="left"), keras.Input((4,), name="right")
    both = L.Concatenate()([L.Dense(3, name="of_left")(left), L.Dense(3, name="of_right")(right)])
    outputs = {"sum": L.Dense(2, name="sum")(both), "pair": [both, L.ReLU()(both)]}
    return keras.Model({"left": left, "right": right}, outputs)


class Residual(keras.Model):
    def __init__(self):
        super().__init__()
        self.norm, self.inner = L.BatchNormalization(name="norm"), L.Dense(6, name="inner")
        self.drop = L.Dropout(0.5)

    def call(self, x, training=False):
        y = self.inner(self.norm(x, training=training))
        return x + self.drop(y, training=training) if training else x + y


def test_dicts_in_and_out():
    network = functional()
    inputs = {"left": X, "right": X[:, :4]}
    model = anyjax.from_tensorflow(network)
    assert list(model.params)[:2] == ["of_left/kernel", "of_left/bias"] and not model.state
    assert_close(model(inputs), jax.tree.map(lambda x: x.numpy(), network(inputs)), reduction=64)
    assert next(iter(model.source.signature.parameters)) == "inputs"


def test_several_inputs_in_a_list():
    a, b = keras.Input((6,)), keras.Input((6,))
    network = keras.Model([a, b], [L.Add()([a, b]), L.Dense(2)(a)])
    model = anyjax.from_tensorflow(network)
    want = [x.numpy() for x in network([X, X * 2])]
    assert_close(model([X, X * 2]), want, reduction=64)


def test_a_model_that_is_not_built():
    network = Residual()
    model = anyjax.from_tensorflow(network, X)
    names = ("norm/gamma", "norm/beta", "inner/kernel", "inner/bias")
    assert {*model.params} == {f"residual/{name}" for name in names}
    assert_close(model(X), network(X).numpy(), reduction=64)


def test_examples_are_arrays_or_tensors():
    wide = tf.constant([1, 2], tf.int64)
    for example in (wide, wide.numpy(), tf.Variable(wide), tf.TensorSpec((2,), tf.int64)):
        model = anyjax.from_tensorflow(lambda x: x + 1, example)
        assert model(wide).tolist() == [2, 3]
    layer = L.Dense(3)
    model = anyjax.from_tensorflow(layer, tf.constant(X))
    assert_close(model(tf.constant(X)), layer(X))


@pytest.mark.parametrize(
    "example", [tf.ragged.constant([[1.0], [2.0, 3.0]]), tf.sparse.from_dense([[0.0, 1.0]])]
)
def test_examples_that_are_no_arrays(example):
    with pytest.raises(WrongArguments, match=r"an argument is a (Ragged|Sparse)Tensor"):
        anyjax.from_tensorflow(lambda x: x, example)


def test_a_frozen_layer_is_state():
    layers = [keras.Input((6,)), L.Dense(3, name="base"), L.Dense(2, name="top")]
    network = keras.Sequential(layers, name="net")
    network.layers[0].trainable = False
    model = anyjax.from_tensorflow(network)
    assert list(model.params) == ["net/top/kernel", "net/top/bias"]
    assert list(model.state) == ["net/base/kernel", "net/base/bias"]


def test_training_mode_with_keys():
    network = keras.Sequential([keras.Input((6,)), L.Dropout(0.5)])
    model = anyjax.from_tensorflow(network).train()
    ones = np.ones((200, 6), np.float32)
    draw = lambda k: model(ones, rng=jax.random.key(k))
    assert (draw(0) == draw(0)).all() and (draw(0) != draw(1)).any()
    assert {*np.unique(draw(0))} == {0.0, 2.0} and abs(float((draw(0) == 0).mean()) - 0.5) < 0.05
    many = jax.vmap(lambda key: model.apply({}, ones, rng=key))(jax.random.split(jax.random.key(0)))
    assert (many[0] != many[1]).any()
    assert (model.eval()(ones) == 1).all()


def test_training_mode_with_the_state_of_keras():
    """Without a key, Keras's own stream of draws goes on."""
    network = keras.Sequential([keras.Input((6,)), L.Dropout(0.5, seed=3)])
    model = anyjax.from_tensorflow(network).train()
    state = model.state
    for _ in range(2):
        got, state = model.apply(model.params, X, state=state, mutable=True)
        assert_close(got, network(X, training=True).numpy())
    with pytest.warns(StateDropped, match="seed_generator_state"):
        model(X)


def test_a_function_has_no_mode():
    with pytest.raises(Unsupported, match="no training mode"):
        anyjax.from_tensorflow(tf.nn.relu, X).train()


def test_strings_are_refused():
    lookup = L.StringLookup(vocabulary=["a"])
    with pytest.raises(Unsupported, match="strings"):
        anyjax.from_tensorflow(lookup)(np.array(["a", "b"]))


def test_weights_that_the_forward_pass_writes():
    """SpectralNormalization divides its kernel itself: the new one belongs to the params."""
    layer = L.SpectralNormalization(L.Dense(3, name="dense"))
    model = anyjax.from_tensorflow(layer, X).train()
    name = next(n for n in model.params if n.endswith("kernel"))
    _, state = model.apply(model.params, X, mutable=True)
    with pytest.raises(WrongArguments, match="in params and in state"):
        model.apply(model.params, X, state=state)
    params = {**model.params, name: state.pop(name)}
    model.apply(params, X, state=state, mutable=True)


def test_training_and_writing_back():
    network = keras.Sequential(
        [
            keras.Input((6,)),
            L.Dense(16),
            L.BatchNormalization(),
            L.ReLU(),
            L.Dropout(0.1),
            L.Dense(1),
        ]
    )
    target = (X[:, :1] * 2 - X[:, 1:2]).astype(np.float32)
    model = anyjax.from_tensorflow(network).train()
    tx = optax.adam(0.03)

    @jax.jit
    def step(params, state, opt, key):
        def loss(params):
            out, new = model.apply(params, X, state=state, rng=key, mutable=True)
            return jnp.mean((out - target) ** 2), new

        (value, state), grads = jax.value_and_grad(loss, has_aux=True)(params)
        updates, opt = tx.update(grads, opt)
        return optax.apply_updates(params, updates), state, opt, value

    params, state, opt, losses = model.params, model.state, tx.init(model.params), []
    for key in jax.random.split(jax.random.key(0), 20):
        params, state, opt, value = step(params, state, opt, key)
        losses.append(float(value))
    assert losses[-1] < losses[0] / 2
    trained = model.eval().with_params(params).with_state(state)
    assert trained.source.write_back(trained.params, trained.state) is network
    assert_close(trained(X), network(X).numpy(), reduction=256)
    with pytest.raises(WrongArguments, match="missing variable"):
        trained.source.write_back({}, trained.state)


def test_a_pytree():
    model = anyjax.from_tensorflow(keras.Sequential([keras.Input((6,)), L.Dense(2)]))
    doubled = jax.tree.map(lambda x: x * 2, model)
    assert_close(doubled(X), 2 * np.asarray(model(X)), reduction=64)
    assert "Sequential from tensorflow" in repr(model)


def test_a_stateful_recurrent_layer():
    layer = L.LSTM(3, stateful=True)
    x = X.reshape(2, 4, 6)
    model = anyjax.from_tensorflow(layer, x)
    state = model.state
    for _ in range(2):
        got, state = model.apply(model.params, x, state=state, mutable=True)
        assert_close(got, layer(x).numpy(), reduction=64)


def test_integers_that_32_bits_do_not_hold():
    function = tf.function(lambda x, y: ((x * 1000003) % 97, y * y, tf.cast(x, tf.float32)))
    specs = tf.TensorSpec([1], tf.int64), tf.TensorSpec([1], tf.int32)
    model = anyjax.from_tensorflow(function, *specs)
    small, wraps = np.int64([1234]), np.int32([2**20])
    out = model(small, wraps)
    assert [x.tolist() for x in out[:2]] == [[1234 * 1000003 % 97], [0]]
    for call in (model, lambda *x: model.apply(model.params, *x)):
        with pytest.raises(Unsupported, match=r"Mul gives 64-bit integers beyond"):
            call(np.int64([123456789]), wraps)
    run = jax.jit(lambda x: model.apply(model.params, x, wraps))
    assert np.isnan(run(np.int64([123456789]))[2]).all()


ROW = [[0], [0]]
WIDE = {
    "Add": lambda x: x + x,
    "Sub": lambda x: -x - x - x,
    "Square": tf.square,
    "SquaredDifference": lambda x: tf.math.squared_difference(x, -x),
    "Neg": lambda x: -(-x - x),
    "Pow": lambda x: x**2,
    "FloorDiv": lambda x: (-x - x) // (x * 0 - 1),
    "MatMul": lambda x: tf.matmul(x[None], x[:, None]),
    "Einsum": lambda x: tf.einsum("i,j->ij", x, x),
    "Sum": tf.reduce_sum,
    "Prod": tf.reduce_prod,
    "Cumsum": tf.cumsum,
    "Cumprod": tf.math.cumprod,
    "AddN": lambda x: tf.add_n([x, x, x]),
    "SegmentSum": lambda x: tf.math.segment_sum(x, [0, 0]),
    "SegmentProd": lambda x: tf.math.segment_prod(x, [0, 0]),
    "UnsortedSegmentSum": lambda x: tf.math.unsorted_segment_sum(x, [0, 0], 1),
    "ScatterNd": lambda x: tf.scatter_nd(ROW, x, [2]),
    "TensorScatterAdd": lambda x: tf.tensor_scatter_nd_add(x, ROW, x),
    "TensorScatterSub": lambda x: tf.tensor_scatter_nd_sub(-x, ROW, x),
    "LeftShift": lambda x: tf.bitwise.left_shift(x, x * 0 + 1),
    "Cast": lambda x: tf.cast(tf.cast(x, tf.float32) * 4, tf.int64),
    "of uint32": lambda x: tf.cast(tf.cast(x, tf.uint32) * 2, tf.int64),
    "uint64": lambda x: tf.cast(tf.cast(x, tf.uint64) * 4, tf.int64),
    "a next position": lambda x: x + 1,
    "Bincount": lambda x: tf.math.bincount(tf.cast(x * 0, tf.int32), weights=x),
}


@pytest.mark.parametrize("name", WIDE)
def test_no_operator_wraps_in_silence(name):
    function = tf.function(lambda x: (WIDE[name](x), tf.cast(x, tf.float32)), autograph=False)
    model = anyjax.from_tensorflow(function, tf.TensorSpec([2], tf.int64))
    small, large = np.int64([3, 3]), np.int64([2**31 - 1 if "position" in name else 2**30] * 2)
    np.testing.assert_array_equal(model(small)[0], WIDE[name](tf.constant(small)).numpy())
    for call in (model, lambda x: model.apply(model.params, jnp.asarray(x))):
        with pytest.raises(Unsupported, match="jax_enable_x64"):
            call(large)


def test_a_variable_does_not_wrap_and_means_are_right():
    total = tf.Variable(np.int64(5), name="total")

    def function(x):
        total.assign_add(tf.reduce_max(x))
        total.assign_add(tf.reduce_max(x))
        return tf.cast(total, tf.float32)

    model = anyjax.from_tensorflow(function, np.int64([1]))
    with pytest.raises(Unsupported, match="AssignAddVariableOp gives 64-bit integers"):
        model.apply(model.params, np.int64([2**30]), mutable=True)
    x = np.int64([2**30 + 7, 5, 2**30 + 8])
    means = lambda x: (tf.reduce_mean(x), tf.math.segment_mean(x, [0, 0, 0]))
    for out in anyjax.from_tensorflow(means)(x):
        assert out.item() == x.sum() // 3
