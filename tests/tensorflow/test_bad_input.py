"""Mistakes: each gives one error of anyjax.errors that says what, why and what to do."""

import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

import anyjax
from anyjax.errors import AnyjaxError, BadCheckpoint, ForwardFailed, Unsupported, WrongArguments

pytestmark = pytest.mark.sample(every=8)

X = np.ones((2, 4), np.float32)


class Module(tf.Module):
    def __init__(self):
        self.w = tf.Variable(tf.ones([4, 3]), name="w")

    @tf.function(input_signature=[tf.TensorSpec([None, 4], name="x")])
    def __call__(self, x):
        return x @ self.w

    @tf.function(
        input_signature=[tf.TensorSpec([None, 4], name="x"), tf.TensorSpec([], tf.int32, name="n")]
    )
    def scaled(self, x, n):
        return x @ self.w * tf.cast(n, tf.float32)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    module = Module()
    tf.saved_model.save(
        module, folder, {"serving_default": module.__call__, "scaled": module.scaled}
    )
    return folder


@pytest.fixture
def copy(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "copy")


def cut(folder, pattern, size):
    for file in folder.glob(pattern):
        file.write_bytes(file.read_bytes()[:size])


def assert_names_folder(error, folder):
    """The error names the folder and has all of its lines."""
    assert str(folder) in error.what
    assert error.why
    assert error.do


@pytest.mark.parametrize("size", [0, 10, 300, 2000])
def test_the_graph_is_cut_short(copy, size):
    cut(copy, "saved_model.pb", size)
    with pytest.raises(BadCheckpoint, match="damaged or was cut short") as caught:
        anyjax.from_tensorflow(copy)
    assert_names_folder(caught.value, copy)


@pytest.mark.parametrize("pattern", ["variables/*.index", "variables/*.data*"])
@pytest.mark.parametrize("size", [None, 0, 3, 40])
def test_variables_are_lost_or_cut_short(copy, pattern, size):
    if size is None:
        for file in copy.glob(pattern):
            file.unlink()
    cut(copy, pattern, size)
    with pytest.raises(BadCheckpoint) as caught:
        anyjax.from_tensorflow(copy)
    assert_names_folder(caught.value, copy)


def test_the_folder_of_variables_is_lost(copy):
    shutil.rmtree(copy / "variables")
    with pytest.raises(BadCheckpoint, match=r"no variables/variables\.index"):
        anyjax.from_tensorflow(copy)


def test_no_graph(copy):
    (copy / "saved_model.pb").unlink()
    with pytest.raises(BadCheckpoint, match=r"no saved_model\.pb"):
        anyjax.from_tensorflow(copy)


def test_an_operator_that_tensorflow_does_not_know(copy):
    proto = SavedModel.FromString((copy / "saved_model.pb").read_bytes())
    for function in proto.meta_graphs[0].graph_def.library.function:
        for node in function.node_def:
            node.op = "Frobnicate" if node.op == "MatMul" else node.op
    (copy / "saved_model.pb").write_bytes(proto.SerializeToString())
    with pytest.raises(BadCheckpoint, match="Frobnicate"):
        anyjax.from_tensorflow(copy)


def test_folders_of_something_else(tmp_path):
    with pytest.raises(BadCheckpoint, match=r"no saved_model\.pb"):
        anyjax.from_tensorflow(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(BadCheckpoint, match="a Hugging Face checkpoint") as caught:
        anyjax.from_tensorflow(tmp_path)
    assert "anyjax.from_pretrained" in caught.value.do
    with pytest.raises(BadCheckpoint, match="it is a file"):
        anyjax.from_tensorflow(tmp_path / "config.json")
    with pytest.raises(BadCheckpoint, match="no such file or folder"):
        anyjax.from_tensorflow(tmp_path / "none")
    with pytest.raises(BadCheckpoint, match="the path is empty"):
        anyjax.from_tensorflow("")


def test_a_signature_that_there_is_not(saved):
    with pytest.raises(WrongArguments, match="no signature 'predict'") as caught:
        anyjax.from_tensorflow(saved, signature="predict")
    assert "scaled, serving_default" in caught.value.why


@pytest.mark.parametrize("source", [None, 3, Module])
def test_what_cannot_be_called(source):
    with pytest.raises(Unsupported, match="a model, a function or a folder"):
        anyjax.from_tensorflow(source)


BAD = {
    "dtype": (X.astype(np.int32),),
    "size": (np.ones((2, 5), np.float32),),
    "rank": (np.ones(4, np.float32),),
    "many": (X, X, X),
    "none": (),
    "text": ("abc",),
}


@pytest.mark.parametrize("args", BAD.values(), ids=BAD)
@pytest.mark.parametrize("signature", [None, "serving_default"])
def test_arguments_of_a_saved_model(saved, signature, args):
    model = anyjax.from_tensorflow(saved, signature=signature)
    assert np.asarray(tf.nest.flatten(model(X))[0]).tolist() == [[4] * 3] * 2
    with pytest.raises(WrongArguments) as caught:
        model(*args)
    assert caught.value.why
    assert caught.value.do
    with pytest.raises(WrongArguments):
        model(y=X)


@pytest.mark.parametrize("args", BAD.values(), ids=BAD)
def test_arguments_of_a_function(args):
    w = tf.Variable(tf.ones([4, 3]))
    model = anyjax.from_tensorflow(lambda x: x @ w, X)
    with pytest.raises((WrongArguments, ForwardFailed)) as caught:
        model(*args)
    assert isinstance(caught.value, AnyjaxError)
    with pytest.raises((WrongArguments, ForwardFailed)):
        anyjax.from_tensorflow(lambda x: x @ w, *args)(*args)


def test_inputs_are_for_graphs():
    with pytest.raises(WrongArguments, match="are for GraphDefs"):
        anyjax.from_tensorflow(lambda x: x, inputs=["x"])


def test_no_python_is_run_when_a_model_is_loaded(tmp_path):
    """A py_function is a number in the file; what it stood for is not there."""
    ran = []

    class Calls(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([2])])
        def __call__(self, x):
            out = tf.py_function(lambda a: ran.append(1) or a, [x], tf.float32)
            return tf.ensure_shape(out, [2])

    tf.saved_model.save(Calls(), tmp_path / "model")
    model = anyjax.from_tensorflow(tmp_path / "model")
    with pytest.raises(Unsupported, match="EagerPyFunc calls Python"):
        model(np.ones(2, np.float32))
    assert not ran


class Pair(keras.Model):
    def call(self, a, b, training=None):
        return a + b


@pytest.mark.parametrize(
    ("inputs", "args", "kwargs", "advice"),
    [
        (["a", "b"], (X, X), {}, "one list: model([a, b])"),
        (["a", "b"], (X,), {}, "one list: model([a, b])"),
        (["a", "b"], (), {"a": X, "b": X}, "one list: model([a, b])"),
        ({"a": "a", "b": "b"}, (X, X), {}, "one dict: model({'a': a, 'b': b})"),
        ({"a": "a", "b": "b"}, ({"a": X},), {}, "one dict: model({'a': a, 'b': b})"),
        ({"x": ["a", "b"], "c": "c"}, (X, X, X), {}, "model({'x': [a, b], 'c': c})"),
        (None, ([X, X],), {}, "model(a, b)"),
        (None, (X, X, X, X), {}, "model(a, b)"),
    ],
)
def test_inputs_of_a_keras_model(inputs, args, kwargs, advice):
    symbols = tf.nest.map_structure(lambda name: keras.layers.Input((4,), name=name), inputs)
    add = lambda: keras.layers.Add()(tf.nest.flatten(symbols))
    model = anyjax.from_tensorflow(Pair() if inputs is None else keras.Model(symbols, add()))
    with pytest.raises((WrongArguments, ForwardFailed)) as caught:
        model(*args, **kwargs)
    assert advice in caught.value.do
