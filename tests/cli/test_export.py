"""``anyjax export``: an artifact that loads, what it says, exit codes."""

import warnings

import numpy as np
import pytest

import anyjax
from anyjax.cli import _export, app
from anyjax.cli._reports import exit_code_of
from tests.tolerance import assert_close

DEMO = "examples/tiny-llama"


def run(capsys, *arguments):
    """(exit code, what it says) in this process."""
    code = exit_code_of(lambda: app(["export", *map(str, arguments)]))
    said = capsys.readouterr()
    return code, said.out + said.err


def test_rolled_and_quantized(tmp_path, capsys):
    code, said = run(
        capsys, DEMO, "-o", tmp_path / "m", "--roll", "--quantize", "int8", "--platforms", "cpu"
    )
    assert code == 0, said
    files = {p.name: p.stat().st_size for p in (tmp_path / "m").iterdir()}
    assert files["params.safetensors"] + files["state.safetensors"] < 2_200_000  # of 3.8 MB
    assert anyjax.load(tmp_path / "m").source.programs[0].platforms == ("cpu",)


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    keras = pytest.importorskip("keras")
    layers = keras.layers.Dense(4, activation="gelu"), keras.layers.Dense(2)
    made = keras.Sequential([keras.layers.Input((3,)), *layers])
    file = tmp_path_factory.mktemp("keras") / "net.keras"
    with warnings.catch_warnings(action="ignore"):  # Keras's own, of numpy
        made.save(file)
    return file, made


X = np.linspace(-1, 1, 15, dtype="f").reshape(5, 3)


@pytest.mark.parametrize("form", ["jax", "savedmodel"])
def test_a_keras_file_for_any_batch(net, tmp_path, capsys, form):
    file, made = net
    out = tmp_path / "net"
    code, said = run(capsys, file, "-o", out, "--format", form, "--batch", "symbolic")
    assert code == 0, said
    assert "inputs float32[batch, 3]" in said
    if form == "jax":
        got = anyjax.load(out)(X)
    else:
        got = anyjax.from_tensorflow(out)(X)["output"]
    assert_close(got, made(X).numpy(), reduction=4)


@pytest.mark.parametrize("options", [["--length", "symbolic"], ["--dtype", "bfloat16"]])
def test_options_of_checkpoints_alone(net, tmp_path, capsys, options):
    code, said = run(capsys, net[0], "-o", tmp_path / "m", *options)
    assert code == 1 and f"{options[0]} for a TensorFlow model" in said


def test_onnx(net, tmp_path, capsys):
    pytest.importorskip("jax2onnx", reason="the extra anyjax[onnx] is not installed")
    file, made = net
    out = tmp_path / "net.onnx"
    code, said = run(capsys, file, "-o", out, "--format", "onnx", "--batch", "symbolic")
    assert code == 0, said
    assert f"onnxruntime.InferenceSession('{out}')" in said
    got = anyjax.export.run_onnx(out, {"inputs": X})["output"]
    assert_close(got, made(X).numpy(), reduction=4)


@pytest.mark.parametrize(
    "options, why",
    [
        (["--format", "pickle"], "--format pickle"),
        (["--batch", "0"], "--batch 0"),
        (["--length", "long"], "--length long"),
        (["--format", "onnx", "--generate", "4"], "--generate with --format onnx"),
        (["--length", "symbolic", "--generate", "4"], "the cache is made for a greatest length"),
        (["--platforms", "abacus"], "platforms="),
        (["--sample"], "--sample without --generate"),
    ],
)
def test_wrong_options(tmp_path, capsys, options, why):
    code, said = run(capsys, DEMO, "-o", tmp_path / "m", *options)
    assert code == 1 and why in said
    assert not any(tmp_path.iterdir())


def test_a_foreign_folder(tmp_path, capsys):
    (tmp_path / "precious.txt").write_text("x")
    code, said = run(capsys, DEMO, "-o", tmp_path)
    assert code == 1 and "holds something else" in said


@pytest.mark.parametrize("found", [(0.5, None), (0.0, False), (float("nan"), True)])
def test_an_artifact_that_disagrees(net, tmp_path, capsys, monkeypatch, found):
    monkeypatch.setattr(_export, "_compared", lambda *args: found)
    code, said = run(capsys, net[0], "-o", tmp_path / "m")
    assert code == 3 and "the artifact and the model disagree" in said
