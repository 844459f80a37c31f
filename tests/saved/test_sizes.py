"""Sizes with names: one program for any batch and length, and what does not fit it."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import anyjax
from anyjax.errors import Unsupported, WrongArguments
from anyjax.saved import SavedSource, dimensions
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=2)

tf = pytest.importorskip("tensorflow")


def scores(x, y):
    """Uses its sizes as values, in reshape, reduction and a range."""
    shape = tf.shape(x)
    flat = tf.reshape(x, [shape[0] * shape[1], 3]) @ W
    place = tf.cast(tf.range(shape[1]), tf.float32)[None, :, None]
    out = tf.reshape(flat, [shape[0], -1, 2]) * place / tf.cast(shape[1], tf.float32)
    return {"out": out + tf.reduce_mean(y), "count": tf.size(x)}


W = tf.Variable(np.linspace(-1, 1, 6).reshape(3, 2).astype("f"), name="w")
SHAPES = {"x": "batch, length, ...", "y": "batch, 2*length"}


def inputs(batch, length, seed=0):
    draw = np.random.default_rng(seed).standard_normal
    return draw((batch, length, 3)).astype("f"), draw((batch, 2 * length)).astype("f")


@pytest.fixture(scope="module")
def model():
    return anyjax.from_tensorflow(scores, *inputs(2, 4))


@pytest.fixture(scope="module")
def loaded(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "scores"
    model.save(folder, *inputs(2, 4), shapes=SHAPES, constraints=("length <= 8",))
    return anyjax.load(folder)


@pytest.mark.parametrize("batch, length", [(2, 4), (1, 1), (5, 8)])
def test_any_size_is_served(model, loaded, batch, length):
    given = inputs(batch, length, seed=1)
    want = scores(*given)
    got = loaded(*given)
    assert got["out"].shape == (batch, length, 2) and got["count"] == want["count"]
    assert_close(got["out"], want["out"].numpy(), reduction=2 * length)

    def loss(m, params):
        return (m.apply(params, *given)["out"] ** 2).sum()

    one, other = (jax.grad(lambda p, m=m: loss(m, p))(m.params) for m in (model, loaded))
    assert_close(other, one, reduction=6 * batch * length, scale=1.0)


@pytest.mark.parametrize(
    "x, y, why",
    [
        ((2, 4, 3), (3, 8), "batch is 2 in x and 3 in y"),
        ((2, 4, 3), (2, 9), r"y has the size 9, not 2\*length, which is 8"),
        ((2, 9, 3), (2, 18), "length <= 8 does not hold: length is 9"),
        ((0, 4, 3), (0, 8), "batch is 0, at least 1 is needed"),
        ((2, 4, 5), (2, 8), "x has the size 5, not 3"),
        ((2, 4), (2, 8), r"x is float32\[2, 4\], not float32\[batch, length, 3\]"),
    ],
)
def test_what_does_not_fit_is_said(loaded, x, y, why):
    with pytest.raises(WrongArguments, match=why):
        loaded(np.zeros(x, "f"), np.zeros(y, "f"))


def test_another_dtype_or_structure_is_said(loaded):
    x, y = inputs(2, 4)
    with pytest.raises(WrongArguments, match=r"y is int32\[2, 8\], not float32\[batch"):
        loaded(x, y.astype(np.int32))
    with pytest.raises(WrongArguments, match="it takes x, y"):
        loaded(x)


def test_symbolic_structs_are_an_example(model, tmp_path):
    shape = jax.export.symbolic_shape("n, m, n2", constraints=("m <= 8", "n2 == 3"))
    n, m, _ = shape
    structs = [jax.ShapeDtypeStruct(s, np.float32) for s in ((n, m, 3), (n, 2 * m))]
    model.save(tmp_path / "m", *structs)
    back = anyjax.load(tmp_path / "m")
    given = inputs(3, 5)
    assert_close(back(*given)["out"], model(*given)["out"], reduction=10)
    with pytest.raises(WrongArguments, match="m <= 8 does not hold: m is 9"):
        back(*inputs(3, 9))
    with pytest.raises(WrongArguments, match="have a scope already"):
        model.save(tmp_path / "m", *structs, constraints=("m <= 4",))


def test_calls_so_far_become_one(tmp_path):
    model = anyjax.from_tensorflow(scores, *inputs(2, 4))
    for size in (3, 4, 5):
        model(*inputs(2, size))
    model.save(tmp_path / "m", shapes=SHAPES)
    told = json.loads((tmp_path / "m" / "model.json").read_text())["calls"]
    assert [c["inputs"]["x"] for c in told] == ["float32[batch, length, 3]"]


def test_an_exact_shape_is_chosen_before_a_symbolic_one():
    calls = [{"inputs": {"x": f"float32[{n}]"}, "rng": None} for n in ("n", "2")]
    source = SavedSource("f", "f", ["x"], (False,), calls, ["any", "two"])
    chosen = lambda size: source._select([np.zeros(size, "f")], ["x"], None)
    assert (chosen(2), chosen(3)) == (1, 0)


@pytest.mark.parametrize(
    "options, why",
    [
        (dict(shapes={"z": "batch"}), "the arguments are x, y"),
        (dict(shapes={"x": "batch, length"}), "gives x the shape"),
        (dict(shapes={"x": "batch, length, 4"}), "gives x the shape"),
        (dict(shapes={"y": "batch, 2*half"}), "the dimension half is part of"),
        (dict(shapes=SHAPES, constraints="length < 8"), "must contain one of"),
        (dict(shapes=SHAPES, constraints="lenght <= 8"), "is about lenght"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(model, tmp_path, options, why):
    with pytest.raises(WrongArguments, match=why):
        model.save(tmp_path / "m", *inputs(2, 4), **options)
    assert not (tmp_path / "m").exists()


def test_shapes_of_a_container_and_of_what_is_no_array(tmp_path):
    model = anyjax.from_tensorflow(tf.function(lambda pair, scale: pair[0] + scale * pair[1]))
    x = np.ones((2, 3), "f")
    model.save(tmp_path / "m", (x, x), 2.0, shapes={"pair": "n, m"})
    assert anyjax.load(tmp_path / "m")((x[:1], x[:1]), 2.0).tolist() == [[3, 3, 3]]
    with pytest.raises(WrongArguments, match=r"scale, which is 2\.0"):
        model.save(tmp_path / "m", (x, x), 2.0, shapes={"scale": "n"})


def test_code_that_asks_for_a_size_names_the_node(tmp_path):
    keras = pytest.importorskip("keras")
    memory = keras.layers.LSTM(2, return_sequences=True, name="memory")
    net = keras.Sequential([keras.layers.Input((None, 3)), memory])
    model = anyjax.from_tensorflow(net)
    x = np.ones((2, 4, 3), "f")
    model.save(tmp_path / "m", x, shapes={"inputs": "batch, ..."})
    assert anyjax.load(tmp_path / "m")(x[:1]).shape == (1, 4, 2)
    with pytest.raises(Unsupported, match=r"(?s)size that is not known.*memory_?1?/TensorArray"):
        model.save(tmp_path / "m", x, shapes={"inputs": "batch, length, _"})


def test_stablehlo_modules_pass_sizes_through(tmp_path):
    n, m = jax.export.symbolic_shape("n, m")
    struct = jax.ShapeDtypeStruct((n, m), np.float32)
    centred = lambda x: x.reshape(-1) - jnp.mean(x) * x.shape[0]
    model = anyjax.from_stablehlo(jax.export.export(jax.jit(centred))(struct))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    model.save(tmp_path / "m", x, shapes={"args[0]": "batch, length"})
    back = anyjax.load(tmp_path / "m")
    for given in (x, x[:1], x[:, :2]):
        assert_close(back(given), centred(given), reduction=6)


@pytest.mark.parametrize(
    "text, sizes, want",
    [("a - 1", {"a": 3}, 2), ("-a + b^2", {"a": 3, "b": 4}, 13), ("max(a, 2) >= 3", {"a": 1}, 0)],
)
def test_expressions(text, sizes, want):
    assert dimensions.value(text, sizes) == want


def test_an_expression_is_no_code():
    with pytest.raises((ValueError, KeyError)):
        dimensions.value("__import__('os').getpid()", {})


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: x.prod(0), r"'n' used in a context.*fix that size in shapes="),
        (lambda x: x[:8] if x.shape[0] >= 8 else x, r'constraints=\("n >= 8",\)'),
    ],
)
def test_errors_say_what_decides_a_size(tmp_path, function, said):
    x = np.ones((3, 4), np.float32)
    with pytest.raises(Unsupported, match=f"(?s){said}"):
        anyjax.from_torch(function).save(tmp_path / "m", x, shapes={"x": "n, ..."})
