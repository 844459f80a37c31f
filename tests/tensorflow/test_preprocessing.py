"""Functions of text in two parts: together they are the function."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import anyjax.tensorflow
from anyjax.errors import Unsupported
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=8)

split = anyjax.tensorflow.split_preprocessing
TEXT = tf.TensorSpec([None], tf.string)
T = tf.constant(["a b", "c", "b zz a"])


@pytest.fixture(scope="module")
def table():
    keys, values = tf.constant(["a", "b", "c"]), tf.constant([1, 2, 3], tf.int64)
    return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), 0)


@pytest.fixture(scope="module")
def rows():
    values = np.random.default_rng(0).standard_normal((10, 4)).astype(np.float32)
    return tf.Variable(values, name="rows")


def assert_same(function, *args):
    """(preprocess, model), checked against the function."""
    preprocess, model = split(function, *(tf.TensorSpec([None] * x.ndim, x.dtype) for x in args))
    got = jax.tree.leaves(model(*preprocess(*args)))
    assert_close(got, [x.numpy() for x in tf.nest.flatten(function(*args))], reduction=64)
    return preprocess, model


def test_a_table_and_its_embedding(table, rows):
    def bag(text):
        return tf.reduce_mean(
            tf.gather(rows, table.lookup(tf.strings.split(text).to_tensor("-"))), 1
        )

    preprocess, model = assert_same(bag, T)
    assert {*model.params} == {"rows"}
    (ids,) = preprocess(T)
    assert ids.dtype == tf.int64
    slope = jax.grad(lambda params: model.apply(params, ids).sum())(model.params)["rows"]
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(bag(T))
    assert_close([slope], [tf.convert_to_tensor(tape.gradient(loss, rows)).numpy()], reduction=64)


def test_numeric_arguments_go_to_both_parts(table):
    def both(text, x):
        ids = table.lookup(tf.strings.join([text, tf.as_string(tf.cast(x, tf.int32))]))
        hot = tf.one_hot(table.lookup(text), 5) * x[:, None]
        return {"hot": hot, "ids": ids, "shaped": tf.reshape(x, tf.shape(ids))}

    assert_same(both, T, tf.constant([1.0, 2.0, 3.0]))


def test_functions_and_branches(table):
    @tf.function
    def called(text):
        ids = table.lookup(text)
        return tf.cond(tf.shape(text)[0] > 2, lambda: ids, lambda: ids * 2)

    assert_same(lambda text: tf.sin(tf.cast(called(text), tf.float32)), T)


def test_text_vectorization(tmp_path):
    """A Keras model, and what it exports."""
    words = tf.keras.layers.TextVectorization(max_tokens=20, output_sequence_length=5)
    words.adapt(["the cat sat", "on the mat"])
    layers = [tf.keras.Input((), dtype="string"), words, tf.keras.layers.Embedding(20, 8)]
    layers += [tf.keras.layers.GlobalAveragePooling1D(), tf.keras.layers.Dense(2)]
    keras = tf.keras.Sequential(layers)
    texts = tf.constant(["the mat", "cat dog sat on"])
    preprocess, model = assert_same(keras, texts)
    assert len(model.params) == 3
    keras.export(tmp_path / "saved", verbose=False)
    prepare, restored = split(tmp_path / "saved", TEXT)
    assert_close(jax.tree.leaves(restored(*prepare(texts))), [keras(texts).numpy()], reduction=64)
    batches = tf.data.Dataset.from_tensor_slices(texts).batch(2).map(preprocess)
    for (ids,) in batches:
        assert_close([model(ids)], [keras(texts).numpy()], reduction=64)


def test_python_functions():
    def doubled(x):
        halves = tf.numpy_function(lambda a: (a / 2).astype("f"), [x], tf.float32)
        return tf.sin(tf.ensure_shape(halves, [None])) * x

    assert_same(doubled, tf.constant([1.0, 2.0]))


def test_strings_as_outputs_are_refused(table):
    with pytest.raises(Unsupported, match="an output is of strings"):
        split(tf.strings.lower, TEXT)


def test_known_keys_are_looked_up_while_tracing(table):
    function = lambda x: tf.cast(table.lookup(tf.constant(["a", "c", "?"])), tf.float32) * x
    model = anyjax.from_tensorflow(function, np.ones(3, np.float32))
    assert model(np.ones(3, np.float32)).tolist() == [1, 3, 0]


@pytest.mark.parametrize(
    "function, given, says",
    [
        (tf.strings.length, np.array(["a"]), "is of strings"),
        (
            lambda x: tf.strings.length(tf.as_string(x)),
            np.ones(2, "f"),
            "AsString works on strings",
        ),
        (
            lambda x: tf.py_function(abs, [x], tf.float32),
            np.ones(2, "f"),
            "EagerPyFunc calls Python",
        ),
        (
            lambda x: tf.numpy_function(np.abs, [x], tf.float32),
            np.ones(2, "f"),
            "PyFunc calls Python",
        ),
    ],
)
def test_errors_name_the_node_and_the_line(function, given, says):
    model = anyjax.from_tensorflow(function, given)
    with pytest.raises(Unsupported, match=says) as caught:
        model(given)
    assert "node '" in caught.value.where
    assert f"{__file__}:" in caught.value.where
    assert "split_preprocessing" in caught.value.do


def test_a_table_with_traced_keys(table):
    numbers = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.constant([1, 2]), tf.constant([3.0, 4.0])), 0.0
    )
    model = anyjax.from_tensorflow(lambda x: numbers.lookup(x) * 2, np.array([1, 5], np.int32))
    assert model(np.array([1, 5], np.int32)).tolist() == [6, 0]
    words = lambda x: table.lookup(tf.as_string(x)) + 1
    model = anyjax.from_tensorflow(words, np.array([1, 5], np.int32))
    with pytest.raises(Unsupported, match="AsString works on strings"):
        model(np.array([1, 5], np.int32))
    assert_same(words, tf.constant([1, 5]))
