"""SavedModels of models: read back with equal values and gradients, by anyjax and by TensorFlow."""

from dataclasses import replace

import jax
import numpy as np
import pytest
import torch
from jax.sharding import AxisType

import anyjax
from anyjax.errors import MissingDependency, MissingRng, NotWritten, Unsupported, WrongArguments
from anyjax.export import flat, portable, to_savedmodel
from tests.models import tiny
from tests.tolerance import assert_close

tf = pytest.importorskip("tensorflow")
draw = np.random.default_rng(0).standard_normal
X = draw((5, 3)).astype("f")


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    layers = torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.GELU(), torch.nn.Linear(4, 2)
    return anyjax.from_torch(torch.nn.Sequential(*layers).eval())


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    place = tmp_path_factory.mktemp("saved") / "net"
    assert to_savedmodel(model, place, X, signature="score") == place
    return place


def test_reads_back(model, folder):
    back = anyjax.from_tensorflow(folder)
    assert {*back.params} == {*model.params} and {*back.state} == {*model.state}
    assert_close(back(X)["output"], model(X), reduction=4)
    loss = lambda m, pick: lambda p: (pick(m.apply(p, X)) ** 2).sum()
    got = jax.grad(loss(back, lambda out: out["output"]))(back.params)
    want = jax.grad(loss(model, lambda out: out))(model.params)
    assert_close(got, want, reduction=20, scale=1.0)


def test_tensorflow_runs_and_differentiates_it(model, folder):
    loaded = tf.saved_model.load(str(folder))
    out = loaded.signatures["score"](input=tf.constant(X))["output"]
    assert_close(out.numpy(), model(X), reduction=4)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(loaded(tf.constant(X))["output"] ** 2)
    names = [v.name.partition(":")[0] for v in loaded.weights if v.trainable]
    got = dict(zip(names, tape.gradient(loss, [v for v in loaded.weights if v.trainable])))
    want = jax.grad(lambda p: (model.apply(p, X) ** 2).sum())(model.params)
    assert {*got} == {*want}
    for name, value in want.items():
        assert_close(got[name].numpy(), value, reduction=20, scale=1.0)


def test_sizes_with_names_are_none(tmp_path):
    keras = pytest.importorskip("keras")
    layers = keras.layers.Dense(4, activation="gelu"), keras.layers.GlobalAveragePooling1D()
    net = keras.Sequential([keras.layers.Input((None, 3)), *layers])
    model = anyjax.from_tensorflow(net)
    x = draw((2, 4, 3)).astype("f")
    options = dict(shapes={"inputs": "batch, length, _"}, constraints=("length <= 8",))
    to_savedmodel(model, tmp_path / "net", x, **options)
    signature = tf.saved_model.load(str(tmp_path / "net")).signatures["serving_default"]
    (spec,) = signature.structured_input_signature[1].values()
    assert spec.shape.as_list() == [None, None, 3]
    back = anyjax.from_tensorflow(tmp_path / "net")
    for batch, length in ((1, 7), (3, 2)):
        x = draw((batch, length, 3)).astype("f")
        assert_close(back(x)["output"], net(x).numpy(), reduction=4 * length)
    grads = jax.grad(lambda p: back.apply(p, x)["output"].sum())(back.params)
    want = jax.grad(lambda p: model.apply(p, x).sum())(model.params)
    assert_close(grads, want, reduction=24, scale=1.0)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_recurrent_layers_of_keras(tmp_path, kind):
    """TensorFlow's own kernels count the steps while TensorFlow traces the program."""
    layers = pytest.importorskip("keras").layers
    cell = {"gru": layers.GRU, "lstm": layers.LSTM}[kind]
    steps = layers.Bidirectional(cell(4, return_sequences=True)), cell(2, go_backwards=True)
    net = layers.Input((6, 3)), layers.Masking(), *steps
    net = pytest.importorskip("keras").Sequential(net)
    x = draw((2, 6, 3)).astype("f")
    x[0, 4:] = 0
    to_savedmodel(anyjax.from_tensorflow(net), tmp_path / "net", x)
    back = anyjax.from_tensorflow(tmp_path / "net")
    assert_close(back(x)["output"], net(x).numpy(), reduction=64)


def test_a_language_model(tmp_path):
    module, inputs = tiny.build("llama")
    model, ids = anyjax.from_torch(module), inputs["input_ids"].numpy()
    to_savedmodel(model, tmp_path / "llama", input_ids=ids, use_cache=False)
    back = anyjax.from_tensorflow(tmp_path / "llama")
    assert {*back.params} == {*model.params}
    want = model(input_ids=ids, use_cache=False).logits
    assert_close(back(input_ids=ids)["logits"], want, reduction=64)


def test_what_it_does_not_write(model, tmp_path, folder):
    (tmp_path / "precious.txt").write_text("x")
    with pytest.raises(WrongArguments, match="holds something else"):
        to_savedmodel(model, tmp_path, X)
    net = anyjax.from_torch(torch.nn.Sequential(torch.nn.BatchNorm1d(3)).train())
    with pytest.raises(Unsupported, match="a forward pass that writes to 0"):
        to_savedmodel(net, tmp_path / "m", X)
    with pytest.raises(MissingRng):
        to_savedmodel(anyjax.from_torch(torch.nn.Dropout().train()), tmp_path / "m", X)
    with pytest.raises(WrongArguments, match="there is no call to export"):
        to_savedmodel(model, tmp_path / "m")
    assert [p.name for p in tmp_path.iterdir()] == ["precious.txt"]


def test_a_full_disk_leaves_the_old_one(model, folder, monkeypatch):
    before = (folder / "saved_model.pb").read_bytes()

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("anyjax.export.savedmodel.make_portable", full)
    with pytest.raises(NotWritten, match="No space left"):
        to_savedmodel(model, folder, X)
    assert (folder / "saved_model.pb").read_bytes() == before
    assert [p.name for p in folder.parent.iterdir()] == [folder.name]


def test_files_that_are_no_part_of_a_savedmodel(model, tmp_path):
    place = to_savedmodel(model, tmp_path / "m", X)
    to_savedmodel(model, place, X)
    (place / "notes.txt").write_text("x")
    with pytest.raises(WrongArguments, match=r"something else: notes\.txt"):
        to_savedmodel(model, place, X)
    assert (place / "notes.txt").read_text() == "x"


class Odd(torch.nn.Module):
    """Names that TensorFlow does not take."""

    def __init__(self):
        super().__init__()
        self._scale = torch.nn.Parameter(torch.arange(3.0))
        self.parts = torch.nn.ParameterDict({"a b": torch.ones(3)})

    def forward(self, x):
        return {"a b": x * self._scale, "a_b": torch.fft.fft(x + self.parts["a b"])}


def test_names_that_tensorflow_does_not_take(tmp_path):
    model = anyjax.from_torch(Odd())
    back = anyjax.from_tensorflow(to_savedmodel(model, tmp_path / "m", X))
    assert {*back.params} == {"._scale", "parts.a_b"}
    got, want = back(X), model(X)
    assert_close([got["a_b_0"], got["a_b_1"]], [want["a b"], want["a_b"]], reduction=3)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_a_model_on_a_mesh(tmp_path, kind):
    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(kind,))
    model = anyjax.from_torch(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)))
    apart = anyjax.parallel.shard(model, mesh, "fsdp")
    x = draw((2, 8)).astype("f")
    back = anyjax.from_tensorflow(to_savedmodel(apart, tmp_path / "m", x))
    assert_close(back(x)["output"], model(x), reduction=24)


def test_differences():
    one = np.array([1.0, 2 + 1j])
    assert flat.difference([one], [one]) == 0
    assert flat.difference([one], [one.conj()]) > 0.8
    assert flat.difference([one], [one.real]) > 0.4
    assert flat.difference([one], []) == flat.difference([one], [one[:1]]) == np.inf
    narrow = anyjax.from_torch(torch.nn.Linear(3, 2).bfloat16())
    assert flat.rounding(narrow) > flat.rounding(replace(narrow, params={}), [X])


def test_another_result_is_an_error(model, tmp_path, monkeypatch):
    monkeypatch.setattr(flat.Call, "want", lambda self, arrays: [np.asarray(model(X)) * 1.01])
    with pytest.raises(Unsupported, match=r"differ from the model's by 9\.9e-03"):
        to_savedmodel(model, tmp_path / "m", X)
    assert not (tmp_path / "m").exists()


def test_programs_are_in_an_older_form():
    exported = jax.export.export(jax.jit(jax.numpy.sin))(jax.ShapeDtypeStruct((), np.float32))
    older = portable.older(exported.mlir_module_serialized)
    version = lambda data: [
        int(x) for x in data.split(b"StableHLO_v")[1].split(b"\0")[0].split(b".")
    ]
    assert version(older) < version(exported.mlir_module_serialized)
    assert anyjax.from_stablehlo(older)(np.float32(0.5)) == np.sin(np.float32(0.5))


def test_without_tensorflow(model, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tensorflow", None)
    with pytest.raises(MissingDependency, match="needs the package tensorflow"):
        to_savedmodel(model, tmp_path / "m", X)
