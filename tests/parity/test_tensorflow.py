"""TensorFlow models beside themselves: node by node, by TensorFlow's own kernels."""

from __future__ import annotations

from dataclasses import replace

import jax
import keras
import numpy as np
import pytest
import tensorflow as tf

import anyjax

X = np.random.default_rng(0).standard_normal((2, 7, 5)).astype(np.float32)
IMAGES = np.random.default_rng(1).standard_normal((2, 16, 16, 3)).astype(np.float32)
layers = keras.layers


def convolutions():
    return keras.Sequential(
        [
            keras.Input((16, 16, 3)),
            layers.Conv2D(8, 3, strides=2),
            layers.BatchNormalization(name="norm"),
            layers.ReLU(),
            layers.UpSampling2D(2, interpolation="bilinear"),
            layers.GlobalAveragePooling2D(),
            layers.Dropout(0.5),
            layers.Dense(3, activation="softmax", name="head"),
        ]
    )


def recurrent():
    return keras.Sequential([keras.Input((7, 5)), layers.LSTM(4), layers.Dense(2, name="head")])


def attention():
    tokens = keras.Input((7, 5))
    mixed = layers.MultiHeadAttention(2, 4, name="attention")(tokens, tokens)
    normed = layers.LayerNormalization(name="norm")(mixed + tokens)
    return keras.Model(tokens, layers.Dense(5, activation="gelu", name="head")(normed))


INPUTS = {convolutions: IMAGES, recurrent: X, attention: X}


@pytest.fixture(params=INPUTS, ids=lambda build: build.__name__)
def network(request):
    keras.utils.set_random_seed(0)
    return request.param(), INPUTS[request.param]


def test_healthy_models_with_gradients(network):
    network, x = network
    report = anyjax.verify(anyjax.from_tensorflow(network), x, gradients=True)
    assert report.ok, str(report)
    assert {g.path for g in report.gradients} >= {v.path for v in network.trainable_variables}
    assert "nodes" in report.verdict


def test_training_with_the_same_masks_leaves_the_network_as_it_was():
    network = convolutions()
    before = network.get_weights()
    model = anyjax.from_tensorflow(network).train()
    report = anyjax.verify(model, IMAGES, rng=jax.random.key(0))
    assert report.ok, str(report)
    for new, old in zip(network.get_weights(), before, strict=True):
        np.testing.assert_array_equal(new, old)


def wrong_epsilon(network):
    network.get_layer("norm").epsilon = 1e-2
    return "norm"


def swapped_weights(network):
    attention = network.get_layer("attention")
    query, key = attention.query_dense.kernel, attention.key_dense.kernel
    kept = query.numpy()
    query.assign(key)
    key.assign(kept)
    return "attention"


def other_activation(network):
    network.get_layer("head").activation = keras.activations.relu
    return "head"


def other_statistics(network):
    network.get_layer("norm").moving_variance.assign_add([0.0] * 7 + [0.1])
    return "norm"


@pytest.mark.parametrize(
    "build, plant",
    [
        (attention, wrong_epsilon),
        (attention, swapped_weights),
        (attention, other_activation),
        (convolutions, wrong_epsilon),
        (convolutions, other_statistics),
        (recurrent, other_activation),
    ],
)
def test_planted_faults(build, plant):
    keras.utils.set_random_seed(0)
    network, x = build(), INPUTS[build]
    model = anyjax.from_tensorflow(network)
    model(x)  # now it is traced
    layer = plant(network)
    report = anyjax.verify(model, x)
    assert not report.ok
    assert all(f"/{layer}" in x.path or not x.path for x in report.faults), str(report)


def test_a_wrong_lowering_is_named(monkeypatch):
    from anyjax.tensorflow.core.schema import table

    wrong = replace(table["Softplus"], lowering=lambda features: jax.nn.relu(features) + 0.001)
    find = table.find
    monkeypatch.setattr(table, "find", lambda op: wrong if op == "Softplus" else find(op))
    function = tf.function(lambda x: tf.math.softplus(x, name="soft") * 2)
    report = anyjax.verify(anyjax.from_tensorflow(function, X), X)
    assert [x.path for x in report.faults] == ["soft"]
    assert "line" in report.places["soft"]
    assert "test_tensorflow.py" in report.verdict


def test_assigned_variables_are_restored_and_graphs_are_served():
    counter = tf.Variable(0.0)

    @tf.function
    def count(x):
        return x + counter.assign_add(1.0)

    report = anyjax.verify(anyjax.from_tensorflow(count, X), X)
    assert report.ok
    assert counter.numpy() == 0
    graph = tf.function(lambda x: tf.tanh(x) @ tf.ones((5, 3))).get_concrete_function(X).graph
    assert anyjax.verify(anyjax.from_tensorflow(graph.as_graph_def()), X).ok


def test_saved_models_and_golden_values(tmp_path):
    network = recurrent()
    network.export(tmp_path / "saved", verbose=False)
    model = anyjax.from_tensorflow(tmp_path / "saved")
    report = anyjax.verify(model, X)
    assert report.ok, str(report)
    report.save_golden(tmp_path / "golden")
    again = anyjax.verify(model, X, reference=tmp_path / "golden")
    assert again.ok, str(again)


def test_a_node_without_a_kernel_is_noted_and_not_judged(monkeypatch):
    from anyjax.compare.sides import tensorflow_side

    compute = tensorflow_side.kernel

    def kernel(node, values):
        if node.op == "Softplus":
            raise tensorflow_side.NotOk("no kernel", tf.errors.NOT_FOUND, {})
        return compute(node, values)

    monkeypatch.setattr(tensorflow_side, "kernel", kernel)
    function = tf.function(lambda x: tf.math.softplus(x, name="soft") * 2)
    report = anyjax.verify(anyjax.from_tensorflow(function, X), X)
    assert report.ok and "soft" not in [x.path for x in report.modules]
    assert "no kernel for it on a CPU: soft" in str(report)
