"""SavedModels that TensorFlow 1 wrote."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import anyjax
from anyjax.errors import BadCheckpoint, WrongArguments

pytestmark = pytest.mark.sample(every=8)

tf1 = tf.compat.v1
X, W, M = (
    np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for shape in ((2, 5), (5, 3), 3)
)


def build(resource):
    """A layer with a moving average; (input, output, the session)."""
    x = tf1.placeholder(tf.float32, [None, 5], name="x")
    w = tf1.get_variable("dense/kernel", initializer=W, use_resource=resource)
    mean = tf1.get_variable("mean", initializer=M, trainable=False, use_resource=resource)
    step = tf1.get_variable("step", initializer=np.int32(7), trainable=False, use_resource=resource)
    hidden = x @ w - mean
    writes = [tf1.assign(mean, tf.reduce_mean(hidden, 0)), tf1.assign_add(step, 1)]
    with tf1.control_dependencies(writes):
        out = tf.tanh(hidden, name="out")
    tf1.get_variable("unused", [4], use_resource=resource)
    session = tf1.Session(graph=x.graph)
    session.run(tf1.global_variables_initializer())
    return x, out, session


def signature(x, out):
    info = tf1.saved_model.build_tensor_info
    return tf1.saved_model.signature_def_utils.build_signature_def(
        {"x": info(x)}, {"out": info(out)}, "predict"
    )


@pytest.mark.parametrize("resource", [False, True])
def test_simple_save(tmp_path, resource):
    folder = str(tmp_path / "saved")
    with tf1.Graph().as_default():
        x, out, session = build(resource)
        with session:
            tf1.saved_model.simple_save(session, folder, {"x": x}, {"out": out})
            want = session.run(out, {x: X})
            new_state = session.run(
                {"mean": "mean:0" if not resource else "mean/Read/ReadVariableOp:0"}
            )
            kernel = session.run(
                "dense/kernel:0" if not resource else "dense/kernel/Read/ReadVariableOp:0"
            )
    model = anyjax.from_tensorflow(folder)
    assert {*model.params} == {"dense/kernel"}
    assert {*model.state} == {"mean", "step"}
    np.testing.assert_array_equal(model.params["dense/kernel"], kernel)
    got, state = model.apply(model.params, X, mutable=True)
    np.testing.assert_allclose(got["out"], want, rtol=1e-6)
    np.testing.assert_allclose(state["mean"], new_state["mean"], rtol=1e-5)
    assert int(state["step"]) == 8
    loss = lambda params: model.apply(params, x=X, mutable=True)[0]["out"].sum()
    slope = jax.grad(loss)(model.params)["dense/kernel"]
    np.testing.assert_allclose(slope, X.T @ (1 - want**2), rtol=1e-4)


def test_signatures_and_tags(tmp_path):
    """As a module of TF-Hub's: several graphs, the one for training under a tag."""
    folder = str(tmp_path / "module")
    builder = tf1.saved_model.Builder(folder)
    with tf1.Graph().as_default():
        x, out, session = build(False)
        double = tf.multiply(out, 2, name="double")
        with session:
            builder.add_meta_graph_and_variables(
                session, ["train"], {"default": signature(x, x)}, strip_default_attrs=True
            )
            builder.add_meta_graph([], {"default": signature(x, out), "two": signature(x, double)})
            builder.save()
            session.run(tf1.global_variables_initializer())
    default, two = anyjax.from_tensorflow(folder), anyjax.from_tensorflow(folder, signature="two")
    first, second = (m.apply(m.params, X, mutable=True)[0]["out"] for m in (default, two))
    np.testing.assert_allclose(second, first * 2, rtol=1e-6)
    with pytest.raises(WrongArguments, match="no signature 'three'") as caught:
        anyjax.from_tensorflow(folder, signature="three")
    assert "default, two" in caught.value.why


def test_partitioned_variables_and_loops(tmp_path):
    folder = str(tmp_path / "saved")
    tf1.disable_control_flow_v2()
    with tf1.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.float32, [None, 5], name="x")
        w = tf1.get_variable(
            "w", [5, 5], partitioner=tf1.fixed_size_partitioner(2), use_resource=False
        )
        w = tf.convert_to_tensor(w)
        out = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, tf.tanh(a @ w)), [0, x])[1]
        session.run(tf1.global_variables_initializer())
        tf1.saved_model.simple_save(session, folder, {"x": x}, {"out": out})
        want = session.run(out, {x: X})
    tf1.enable_control_flow_v2()
    model = anyjax.from_tensorflow(folder)
    assert {k: v.shape for k, v in model.params.items()} == {"w/part_0": (3, 5), "w/part_1": (2, 5)}
    np.testing.assert_allclose(model(X)["out"], want, rtol=1e-5, atol=1e-6)  # sums that cancel


def test_references_that_are_scattered_to(tmp_path):
    folder = str(tmp_path / "saved")
    with tf1.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.float32, [2, 5], name="x")
        table = tf1.get_variable("table", [4, 5], trainable=False, use_resource=False)
        written = tf1.scatter_add(table, [1, 3], x)
        out = (
            tf.identity(written) * 2 + tf.identity(tf1.assign_sub(written, tf.ones([4, 5])))[:1] * 0
        )
        session.run(tf1.global_variables_initializer())
        tf1.saved_model.simple_save(session, folder, {"x": x}, {"out": out})
        initial = session.run("table:0")
    model = anyjax.from_tensorflow(folder)
    _, state = model.apply(model.params, X, mutable=True)
    np.testing.assert_allclose(state["table"][np.array([1, 3])], initial[[1, 3]] + X - 1, rtol=1e-5)
    np.testing.assert_allclose(state["table"][np.array([0, 2])], initial[[0, 2]] - 1, rtol=1e-5)


def test_lost_variables(tmp_path):
    folder = tmp_path / "saved"
    with tf1.Graph().as_default():
        x, out, session = build(True)
        with session:
            tf1.saved_model.simple_save(session, str(folder), {"x": x}, {"out": out})
    data = next((folder / "variables").glob("*.data*"))
    data.write_bytes(data.read_bytes()[:20])
    with pytest.raises(BadCheckpoint, match="variables"):
        anyjax.from_tensorflow(folder)
    (folder / "variables" / "variables.index").unlink()
    with pytest.raises(BadCheckpoint, match="variables"):
        anyjax.from_tensorflow(folder)
