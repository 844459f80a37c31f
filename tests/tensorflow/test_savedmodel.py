"""Keras models on disk: .keras, .h5, exported and saved folders, and our own."""

import jax
import keras
import numpy as np
import pytest
import tensorflow as tf

import anyjax
from anyjax.errors import BadCheckpoint, Unsupported, WrongArguments
from tests.tolerance import assert_close

# Keras saves weights with np.array of tensors, which do not know numpy 2's `copy` yet.
pytestmark = [
    pytest.mark.sample(every=8),
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy"),
]

X = np.random.default_rng(0).standard_normal((3, 6)).astype(np.float32)
NAMES = ["first/kernel", "first/bias", "norm/gamma", "norm/beta", "last/kernel", "last/bias"]


def network() -> keras.Model:
    keras.utils.set_random_seed(0)
    pixels = keras.Input((6,), name="pixels")
    x = keras.layers.Dense(4, activation="relu", name="first")(pixels)
    x = keras.layers.BatchNormalization(name="norm")(x)
    x = keras.layers.Dropout(0.5, seed=1)(x)
    return keras.Model(pixels, keras.layers.Dense(2, name="last")(x))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keras")
    model = network()
    model.save(folder / "model.keras")
    model.export(folder / "exported", verbose=False)
    tf.saved_model.save(model, str(folder / "saved"))
    return folder, model(X).numpy()


def test_a_keras_file(written):
    folder, want = written
    model = anyjax.from_tensorflow(folder / "model.keras")
    assert list(model.params) == NAMES
    assert {*model.state} >= {"norm/moving_mean", "norm/moving_variance"}
    assert_close(model(X), want, reduction=64)
    assert anyjax.convert(str(folder / "model.keras")).params.keys() == model.params.keys()


def test_an_h5_file(tmp_path):
    keras_model = network()
    keras_model.save(tmp_path / "model.h5")
    model = anyjax.from_tensorflow(tmp_path / "model.h5")
    assert list(model.params) == NAMES
    assert_close(model(X), keras_model(X).numpy(), reduction=64)


@pytest.mark.parametrize("kind", ["exported", "saved"])
def test_a_folder(written, kind):
    folder, want = written
    model = anyjax.from_tensorflow(folder / kind)
    assert list(model.params) == NAMES
    assert list(model.state) == ["norm/moving_mean", "norm/moving_variance"]
    (name,) = model.source.signature.parameters
    for out in (model(X), model(**{name: X})):
        assert_close(out, {"output_0": want}, reduction=64)
    grads = jax.grad(lambda p: (model.apply(p, X)["output_0"] ** 2).sum())(model.params)
    assert grads["first/kernel"].shape == (6, 4) and np.abs(grads["first/kernel"]).max() > 0
    with pytest.raises(Unsupported, match="no training mode"):
        model.train()


def test_the_served_function_keeps_the_structure(written):
    folder, want = written
    restored = tf.saved_model.load(str(folder / "exported"))
    model = anyjax.from_tensorflow(restored.serve, X)
    assert {*model.params} == {*NAMES}
    assert_close(model(X), want, reduction=64)
    with pytest.raises(WrongArguments, match="no signature 'other'"):
        anyjax.from_tensorflow(folder / "exported", signature="other")


@pytest.mark.parametrize("kind", ["model.keras", "exported"])
def test_saved_again_it_runs_without_tensorflow(written, tmp_path, kind):
    folder, want = written
    model = anyjax.from_tensorflow(folder / kind)
    model.save(tmp_path / "ours", X)
    loaded = anyjax.load(tmp_path / "ours")
    assert loaded.params.keys() == model.params.keys()
    assert_close(jax.tree.leaves(loaded(X)), [want], reduction=64)
    doubled = loaded.with_params(jax.tree.map(lambda x: x * 2, loaded.params))
    assert_close(
        jax.tree.leaves(doubled(X)),
        jax.tree.leaves(model.with_params(doubled.params)(X)),
        reduction=64,
    )


def test_what_is_no_model(tmp_path):
    with pytest.raises(BadCheckpoint, match="no SavedModel"):
        anyjax.from_tensorflow(tmp_path)
    (tmp_path / "broken.keras").write_bytes(b"PK")
    with pytest.raises(BadCheckpoint, match="cannot be read"):
        anyjax.from_tensorflow(tmp_path / "broken.keras")


def test_without_a_signature_the_functions_are_named(tmp_path):
    module = tf.Module()
    module.w = tf.Variable(2.0)
    spec = tf.TensorSpec([None])
    module.double = tf.function(lambda x: module.w * x, input_signature=[spec])
    module.triple = tf.function(lambda x: 1.5 * module.double(x), input_signature=[spec])
    tf.saved_model.save(module, str(tmp_path))
    with pytest.raises(WrongArguments, match="functions in it are double, triple"):
        anyjax.from_tensorflow(tmp_path)
    model = anyjax.from_tensorflow(tmp_path, signature="double")
    assert model(np.ones(3, np.float32)).tolist() == [2.0, 2.0, 2.0]


class Scaled(tf.Module):
    """A module without ``__call__`` whose functions are saved as they were called."""

    def __init__(self):
        self.w = tf.Variable([2.0, 3.0], name="w")
        keys = tf.lookup.KeyValueTensorInitializer([1, 2], [10.0, 20.0])
        self.table = tf.lookup.StaticHashTable(keys, 0.0)

    @tf.function
    def scale(self, x, times=1):
        return times * x * self.w

    @tf.function
    def look(self, place):
        return self.table.lookup(place)


def test_functions_that_are_no_signatures(tmp_path):
    inner, outer = Scaled(), tf.Module()
    outer.steps = [inner]
    one, two = np.ones(2, np.float32), np.ones((3, 2), np.float32)
    want = [inner.scale(one).numpy(), inner.scale(two, 2).numpy()]
    tf.saved_model.save(outer, str(tmp_path / "one"))
    model = anyjax.from_tensorflow(tmp_path / "one")  # the only function in it
    assert [*model.params] == ["w"]
    np.testing.assert_array_equal(model(one), want[0])
    np.testing.assert_array_equal(model(two, 2), want[1])
    inner.look(tf.constant([1]))
    tf.saved_model.save(outer, str(tmp_path / "two"))
    with pytest.raises(WrongArguments, match=r"in it are steps\.0\.look, steps\.0\.scale"):
        anyjax.from_tensorflow(tmp_path / "two")
    model = anyjax.from_tensorflow(tmp_path / "two", signature="steps.0.look")
    assert model(np.int32([2])).tolist() == [20.0]
    restored = tf.saved_model.load(str(tmp_path / "two"))
    np.testing.assert_array_equal(anyjax.from_tensorflow(restored.steps[0].scale)(one), want[0])


def test_what_has_no_graph_or_no_variables_any_more(tmp_path):
    tf.saved_model.save(module := Scaled(), str(tmp_path / "new"))
    with pytest.raises(WrongArguments, match=r"once before tf\.saved_model\.save"):
        anyjax.from_tensorflow(tmp_path / "new")
    with pytest.raises(anyjax.errors.Unsupported, match=r"from_tensorflow\(module\.look\)"):
        anyjax.from_tensorflow(module)
    module.scale(tf.ones(2))
    tf.saved_model.save(module, str(tmp_path / "called"))
    function = tf.saved_model.load(str(tmp_path / "called")).scale
    with pytest.raises(WrongArguments, match="variables of the function are gone"):
        anyjax.from_tensorflow(function)


def test_of_several_signatures_one_is_named(tmp_path):
    module = tf.Module()
    spec = tf.TensorSpec([None])
    double, triple = (tf.function(lambda x, n=n: n * x, input_signature=[spec]) for n in (2, 3))
    module.double, module.triple = double, triple
    signatures = {"double": double, "triple": triple}
    tf.saved_model.save(module, str(tmp_path), signatures)
    with pytest.raises(WrongArguments, match="several signatures"):
        anyjax.from_tensorflow(tmp_path)
    model = anyjax.from_tensorflow(tmp_path, signature="triple")
    assert model(np.ones(1, np.float32))["output_0"].tolist() == [3.0]
