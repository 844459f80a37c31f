"""ONNX files of models: onnxruntime computes what the model does, and what cannot be written."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import MissingDependency, MissingOps, NotWritten, Unsupported, WrongArguments
from anyjax.export import flat, run_onnx, to_onnx
from tests.models import tiny
from tests.tolerance import assert_close

EXTRA = "the extra anyjax[onnx] is not installed"
plugin_system = pytest.importorskip("jax2onnx.plugins.plugin_system", reason=EXTRA)
pytest.importorskip("onnxruntime", reason=EXTRA)
nn = torch.nn
draw = np.random.default_rng(0).standard_normal
X = draw((5, 3)).astype("f")


@pytest.fixture(scope="module")
def mlp():
    torch.manual_seed(0)
    layers = nn.Linear(3, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2), nn.Softmax(-1)
    return anyjax.from_torch(nn.Sequential(*layers))


def test_a_perceptron(mlp, tmp_path):
    file = to_onnx(mlp, tmp_path / "deep" / "mlp.onnx", X)
    other = draw((5, 3)).astype("f")
    assert_close(run_onnx(file, {"input": other})["output"], mlp(other), reduction=8)
    assert [p.name for p in file.parent.iterdir()] == ["mlp.onnx"]
    for wrong in ({"x": X}, {"input": X, "mask": X}):
        with pytest.raises(WrongArguments, match="the file takes input"):
            run_onnx(file, wrong)


def test_a_convolutional_network(tmp_path):
    """Pooling over two axes of four, a depthwise convolution and BatchNorm."""
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
    layers += nn.Conv2d(8, 8, 3, groups=8), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    model = anyjax.from_torch(nn.Sequential(*layers, nn.Linear(8, 2)).eval())
    x = draw((2, 3, 16, 16)).astype("f")
    file = to_onnx(model, tmp_path / "cnn.onnx", x)
    assert_close(run_onnx(file, {"input": -x})["output"], model(-x), reduction=72)


def test_a_language_model(tmp_path):
    module, inputs = tiny.build("llama")
    model, ids = anyjax.from_torch(module), inputs["input_ids"].numpy().astype(np.int32)
    file = to_onnx(model, tmp_path / "llama.onnx", input_ids=ids, use_cache=False)
    want = model(input_ids=ids[:, ::-1], use_cache=False).logits
    assert_close(run_onnx(file, {"input_ids": ids[:, ::-1]})["logits"], want, reduction=64)


def test_sizes_with_names(tmp_path):
    keras = pytest.importorskip("keras")
    layers = keras.layers.Conv2D(4, 3, activation="relu"), keras.layers.MaxPooling2D()
    layers += keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(3, activation="softmax")
    net = keras.Sequential([keras.layers.Input((12, 12, 3)), *layers])
    model = anyjax.from_tensorflow(net)
    x = draw((2, 12, 12, 3)).astype("f")
    file = to_onnx(model, tmp_path / "net.onnx", x, shapes={"inputs": "batch, ..."})
    for count in (1, 4):
        x = draw((count, 12, 12, 3)).astype("f")
        assert_close(run_onnx(file, {"inputs": x})["output"], net(x).numpy(), reduction=36)


def test_operators_that_it_does_not_know_are_listed(tmp_path, monkeypatch):
    with warnings.catch_warnings(action="ignore"):
        plugin_system.import_all_plugins()
    monkeypatch.delitem(plugin_system.PLUGIN_REGISTRY, "cos")
    spec = jax.ShapeDtypeStruct((3, 3), np.float32)
    exported = jax.export.export(jax.jit(lambda x: jnp.linalg.qr(jnp.cos(x))[0]))(spec)
    with pytest.raises(MissingOps, match="as ONNX: cos, geqrf") as caught:
        to_onnx(anyjax.from_stablehlo(exported), tmp_path / "qr.onnx", np.eye(3, dtype="f"))
    assert {"cos", "geqrf"} <= {*caught.value.ops}
    assert not any(tmp_path.iterdir())


def test_another_result_is_an_error(mlp, tmp_path, monkeypatch):
    monkeypatch.setattr(flat.Call, "want", lambda self, arrays: [np.asarray(mlp(X)) * 1.01])
    with pytest.raises(Unsupported, match=r"differ from the model's by 9\.9e-03"):
        to_onnx(mlp, tmp_path / "m.onnx", X)
    assert not any(tmp_path.iterdir())


def test_a_file_that_does_not_run_is_an_error(mlp, tmp_path, monkeypatch):
    def fail(*args):
        raise RuntimeError("Unsupported pooling size")

    monkeypatch.setattr("anyjax.export.onnx.run_onnx", fail)
    with pytest.raises(Unsupported, match="onnxruntime does not run it"):
        to_onnx(mlp, tmp_path / "m.onnx", X)
    assert not any(tmp_path.iterdir())


def test_a_full_disk(mlp, tmp_path, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    (tmp_path / "m.onnx").write_text("old")
    monkeypatch.setattr("os.replace", full)
    with pytest.raises(NotWritten, match="No space left"):
        to_onnx(mlp, tmp_path / "m.onnx", X)
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]
    assert (tmp_path / "m.onnx").read_text() == "old"


def test_a_place_where_no_file_can_be(mlp, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotWritten, match="cannot be written"):
        to_onnx(mlp, tmp_path / "file" / "m.onnx", X)


def test_weights_beside_a_file_that_would_be_too_large(mlp, tmp_path, monkeypatch):
    monkeypatch.setattr("anyjax.export.onnx.LARGE", 0)
    wide = anyjax.from_torch(nn.Linear(3, 4000))
    file = to_onnx(wide, tmp_path / "m.onnx", X)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]
    assert_close(run_onnx(file, {"input": X})["output"], wide(X), reduction=3)


def test_without_the_extra(mlp, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "jax2onnx", None)
    with pytest.raises(MissingDependency, match="pip install anyjax"):
        to_onnx(mlp, tmp_path / "m.onnx", X)


def test_functions_of_jax_are_as_before(tmp_path):
    """jax2onnx replaces some of them meanwhile."""
    before = {m: dict(vars(m)) for m in (jax.numpy, jax.lax, jax.nn)}
    model = anyjax.from_torch(torch.nn.Linear(3, 2))
    to_onnx(model, tmp_path / "linear.onnx", np.ones((2, 3), np.float32))
    changed = [k for m, held in before.items() for k, x in held.items() if vars(m)[k] is not x]
    assert not changed
    assert jnp.cumsum(jnp.ones((1, 2)), 1).tolist() == [[1, 2]]


def test_nothing_is_said_of_sizes_with_names(mlp, tmp_path, caplog):
    """onnx_ir has a warning for each intermediate value of such a program."""
    with caplog.at_level("WARNING"):
        file = to_onnx(mlp, tmp_path / "mlp.onnx", X, shapes={"input": "rows, 3"})
    assert not caplog.records
    assert run_onnx(file, {"input": X[:2]})["output"].shape == (2, 2)
