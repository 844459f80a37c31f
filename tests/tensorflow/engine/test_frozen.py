"""Frozen graphs: values, weights as params, and what is chosen by itself."""

import jax
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.python.framework.convert_to_constants import (
    convert_variables_to_constants_v2 as freeze,
)

import anyjax
from anyjax.errors import BadCheckpoint, WrongArguments

pytestmark = pytest.mark.sample(every=8)

tf1 = tf.compat.v1
X = np.random.default_rng(0).standard_normal((2, 5)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)


def old_graph(resource=False):
    """A TF1 graph with its variables made constants, and its output for X."""
    graph = tf1.Graph()
    with graph.as_default(), tf1.Session(graph=graph) as session:
        x = tf1.placeholder(tf.float32, [None, 5], name="x")
        w = tf1.get_variable("dense/kernel", initializer=W, use_resource=resource)
        b = tf1.get_variable("dense/bias", initializer=np.ones(3, "f"), use_resource=resource)
        out = tf.nn.relu(x @ w + b, name="out")
        session.run(tf1.global_variables_initializer())
        frozen = tf1.graph_util.convert_variables_to_constants(
            session, graph.as_graph_def(), ["out"]
        )
        return frozen, session.run(out, {x: X})


@pytest.mark.parametrize("resource", [False, True])
def test_weights_are_params_under_their_names(resource):
    frozen, want = old_graph(resource)
    model = anyjax.from_tensorflow(frozen)
    (name,) = model.params
    assert name.startswith("dense/kernel")
    np.testing.assert_allclose(model(X), want, rtol=1e-6)
    loss = lambda params: (model.apply(params, X) ** 2).sum()
    slope = jax.grad(loss)(model.params)[name]
    np.testing.assert_allclose(slope, 2 * X.T @ want, rtol=1e-5)
    zero = {name: np.zeros_like(W)}
    np.testing.assert_allclose(model.apply(zero, X), np.ones((2, 3)))


def test_weights_may_stay_constants():
    frozen, want = old_graph()
    model = anyjax.from_tensorflow(frozen, weights=False)
    assert not model.params
    np.testing.assert_allclose(model(X), want, rtol=1e-6)


def test_params_go_back_into_the_graph():
    frozen, _ = old_graph()
    model = anyjax.from_tensorflow(frozen)
    changed = model.with_params({name: x * 2 for name, x in model.params.items()})
    reread = anyjax.from_tensorflow(changed.source.write_back(changed.params, changed.state))
    np.testing.assert_array_equal(reread(X), changed(X))


@pytest.mark.parametrize("name", ["graph.pb", "graph.pbtxt"])
def test_files(tmp_path, name):
    frozen, want = old_graph()
    text = text_format.MessageToString(frozen).encode()
    (tmp_path / name).write_bytes(text if name.endswith("txt") else frozen.SerializeToString())
    model = anyjax.from_tensorflow(tmp_path / name, inputs=["x:0"], outputs={"y": "out"})
    np.testing.assert_allclose(model(x=X)["y"], want, rtol=1e-6)


def test_inner_tensors_as_inputs_and_outputs():
    frozen, _ = old_graph()
    model = anyjax.from_tensorflow(frozen, inputs="add", outputs=["out", "add:0"])
    out, same = model(X[:, :3])
    np.testing.assert_array_equal(out, np.maximum(X[:, :3], 0))
    np.testing.assert_array_equal(same, X[:, :3])


@pytest.mark.parametrize("lower", [True, False])
def test_freezing_a_function(lower):
    tf.keras.utils.set_random_seed(0)
    dense = tf.keras.layers.Dense(3)
    dense.build([None, 5])

    @tf.function(input_signature=[tf.TensorSpec([None, 5])])
    def call(x):
        body = lambda i, a: (i + 1, a + tf.tanh(dense(x)))
        steps = tf.while_loop(lambda i, a: i < 3, body, [0, dense(x)])[1]
        return tf.cond(tf.reduce_sum(x) > 0, lambda: steps, lambda: dense(x) * 2)

    frozen = freeze(call.get_concrete_function(), lower_control_flow=lower)
    model = anyjax.from_tensorflow(frozen.graph.as_graph_def())
    for x in (X, -X):
        np.testing.assert_allclose(model(x), call(x), rtol=1e-5, atol=1e-6)  # sums of terms near 1
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(call(X) ** 2)
    want = tape.gradient(loss, dense.kernel.value)
    slopes = jax.grad(lambda params: (model.apply(params, X) ** 2).sum())(model.params)
    (slope,) = (x for x in slopes.values() if x.shape == (5, 3))
    np.testing.assert_allclose(slope, want, rtol=1e-4)


def test_a_name_that_no_node_has():
    frozen, _ = old_graph()
    with pytest.raises(WrongArguments, match="no tensor 'ouput'") as caught:
        anyjax.from_tensorflow(frozen, outputs="ouput")
    assert "out" in caught.value.why


def test_an_unknown_operator():
    frozen, _ = old_graph()
    frozen.node[-1].op = "Frobnicate"
    with pytest.raises(BadCheckpoint, match="Frobnicate"):
        anyjax.from_tensorflow(frozen)


def test_a_file_that_is_cut_short(tmp_path):
    frozen, _ = old_graph()
    (tmp_path / "graph.pb").write_bytes(frozen.SerializeToString()[:150])
    with pytest.raises(BadCheckpoint, match="no GraphDef"):
        anyjax.from_tensorflow(tmp_path / "graph.pb")
