"""Layers and nodes of TensorFlow models: their values, and others in their place."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
import tensorflow as tf

import anyjax
from anyjax.errors import Unsupported, WrongArguments
from anyjax.transforms import edit, intermediates

X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)


@pytest.fixture(scope="module")
def network():
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input((6,)),
            keras.layers.Dense(8, activation="relu", name="first"),
            keras.layers.LayerNormalization(name="norm"),
            keras.layers.Dense(3, name="last"),
        ]
    )


@pytest.mark.parametrize("layer", ["first", "norm", "last"])
def test_a_layer_has_the_value_that_keras_gives_it(network, layer):
    _, values = intermediates(anyjax.from_tensorflow(network), f"{layer}(_\\d+)?$")(X)
    (value,) = values.values()
    inner = keras.Model(network.inputs[0], network.get_layer(layer).output)
    np.testing.assert_allclose(value, inner(X), atol=1e-6)


def test_nodes_have_their_own_paths(network):
    _, values = intermediates(anyjax.from_tensorflow(network), "first.*/MatMul$")(X)
    ((path, value),) = values.items()
    kernel, _ = network.get_layer("first").get_weights()
    np.testing.assert_allclose(value, X @ kernel, atol=1e-5)
    assert path.endswith(("first_1/MatMul", "first/MatMul"))


def test_edits_and_gradients_with_respect_to_a_layer(network):
    model = anyjax.from_tensorflow(network)
    halved = edit(model, {"norm(_\\d+)?$": lambda h: h / 2})
    last = network.get_layer("last")
    norm = keras.Model(network.inputs[0], network.get_layer("norm").output)
    np.testing.assert_allclose(halved(X), last(norm(X) / 2), atol=1e-6)
    shifted = lambda d: edit(model, {"norm(_\\d+)?$": lambda h: h + d}).apply(model.params, X).sum()
    gradient = jax.grad(shifted)(jnp.zeros((4, 8)))
    np.testing.assert_allclose(gradient[0], last.get_weights()[0].sum(1), atol=1e-6)


def test_a_saved_model_has_the_layers_inside_of_its_functions(network, tmp_path):
    network.export(tmp_path / "saved", verbose=False)
    model = anyjax.from_tensorflow(str(tmp_path / "saved"))
    _, values = intermediates(model, "norm(_\\d+)?$")(X)
    inner = keras.Model(network.inputs[0], network.get_layer("norm").output)
    np.testing.assert_allclose(next(iter(values.values())), inner(X), atol=1e-6)


@tf.function
def looped(x):
    for _ in tf.range(3):
        x = tf.tanh(x, name="inner")
    return x


def test_inside_of_a_loop_values_are_refused_and_edits_work():
    model = anyjax.from_tensorflow(looped, X)
    with pytest.raises(Unsupported, match="inside of a loop, a branch"):
        intermediates(model, "inner$")(X)
    assert not edit(model, {"inner$": lambda y: 0 * y})(X).any()


def test_other_names_and_inputs_of_layers_are_refused(network):
    model = anyjax.from_tensorflow(network)
    with pytest.raises(WrongArguments, match="no module has a path"):
        intermediates(model, "fist$")(X)
    with pytest.raises(Unsupported, match="the inputs of"):
        intermediates(model, "first(_\\d+)?$", inputs=True)(X)


def test_programs_speak_of_nodes(network):
    model = anyjax.from_tensorflow(network)
    text = jax.jit(lambda p: model.apply(p, X)).lower(model.params).compile().as_text()
    assert "first_1/MatMul/dot_general" in text
