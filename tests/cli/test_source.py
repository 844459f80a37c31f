"""The verbs on adapters and on what was saved, from any working directory."""

import json
import shutil
import warnings
from pathlib import Path

import pytest

import anyjax as package
from anyjax.cli.sources import kind_of
from anyjax.cli.sources.checkpoint import resolve
from tests.cli.test_messages import DEMO, anyjax, assert_four_lines

__all__ = ["anyjax"]  # the fixture
SHORT = ["-p", "def main(", "-n", "6"]


@pytest.fixture(scope="module")
def adapter(tmp_path_factory):
    """A folder as ``anyjax finetune`` writes it, its weights moved so that another text comes."""
    import jax

    model = package.train.lora(package.from_pretrained(DEMO), 2, "q_proj|down_proj")
    key = jax.random.key(0)
    moved = {k: x + 0.3 * jax.random.normal(key, x.shape) for k, x in model.params.items()}
    folder = tmp_path_factory.mktemp("adapter") / "tuned"
    package.train.save_adapter(model.with_params(moved), folder)
    return folder


def test_an_adapters_folder_from_anywhere(anyjax, adapter, tmp_path, monkeypatch):
    plain = anyjax("generate", DEMO, *SHORT)[1]
    monkeypatch.chdir(tmp_path)
    code, out, err = anyjax("generate", adapter, *SHORT)
    assert code == 0, err
    assert out.startswith("def main(") and out != plain
    assert anyjax("generate", DEMO, "--adapter", adapter, *SHORT)[1] == out
    code, told, err = anyjax("inspect", adapter)
    assert code == 0, err
    assert "LORA of rank 2, 16 tensors" in told and "aten.linear.default" in told


def test_run_of_an_adapter(anyjax, adapter):
    code, out, err = anyjax("run", adapter, "--json")
    assert code == 0, err
    told = json.loads(out)
    assert told["agree"] and told["from"] == str(adapter)
    assert told["seconds"]["compile"] > 0


def test_a_relative_base_lies_above_the_adapter(adapter, tmp_path, monkeypatch):
    shutil.copytree(DEMO, tmp_path / "models" / "base")
    moved = Path(shutil.copytree(adapter, tmp_path / "runs" / "one"))
    file = moved / "adapter_config.json"
    config = json.loads(file.read_text()) | {"base_model_name_or_path": "models/base"}
    file.write_text(json.dumps(config))
    monkeypatch.chdir("/")
    assert resolve(str(moved)).path == tmp_path / "models" / "base"


@pytest.mark.parametrize("base", ["/no/such/folder", "no_such/model"])
def test_a_base_that_is_not_there(anyjax, adapter, tmp_path, base, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    moved = Path(shutil.copytree(adapter, tmp_path / "one"))
    file = moved / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"base_model_name_or_path": base}))
    code, _, err = anyjax("generate", moved, *SHORT)
    assert code == 1
    assert "--adapter" in assert_four_lines(err)[-1]


def test_an_adapter_that_is_none(anyjax, tmp_path):
    code, _, err = anyjax("generate", DEMO, "--adapter", tmp_path, *SHORT)
    assert code == 1
    assert "has no adapter_config.json" in assert_four_lines(err)[0]


def test_what_export_wrote(anyjax, tmp_path):
    out = tmp_path / "saved"
    options = "--length", "12", "--generate", "6"
    assert anyjax("export", DEMO, "-o", out, *options)[0] == 0
    code, text, err = anyjax("generate", out, *SHORT)
    assert code == 0, err
    assert text == anyjax("generate", DEMO, *SHORT)[1]
    assert "saved for 6 new tokens" in anyjax("generate", out, "-p", "x")[2]
    code, told, _ = anyjax("inspect", out)
    assert code == 0
    assert "input_ids int32[1, 12]" in told and "max_new_tokens 6" in told
    assert json.loads(anyjax("inspect", out, "--json")[1])["model"] == "LlamaForCausalLM"
    code, told, err = anyjax("run", out)
    assert code == 0, err
    assert "outputs: float32[1, 12, 2048]" in told
    code, _, err = anyjax("export", DEMO, "-o", out, *options)  # the tokenizer is in nobody's way
    assert code == 0 and "is there and is replaced" in err
    shutil.rmtree(out / "tokenizer")
    code, _, err = anyjax("generate", out, *SHORT)
    assert code == 1 and "--tokenizer" in assert_four_lines(err)[-1]


@pytest.mark.parametrize("form", ["folder", "file"])
def test_inspect_of_tensorflows_models(anyjax, tmp_path, form):
    keras = pytest.importorskip("keras")
    layers = [keras.layers.Dense(4), keras.layers.Dense(2)]  # their variables have the same names
    made = keras.Sequential([keras.layers.Input((3,)), *layers])
    place = tmp_path / ("net" if form == "folder" else "net.keras")
    with warnings.catch_warnings(action="ignore"):  # Keras's own, of numpy
        made.export(place, verbose=False) if form == "folder" else made.save(place)
        code, out, err = anyjax("inspect", place)
        told = json.loads(anyjax("inspect", place, "--json")[1])
    assert code == 0, err
    assert "float32[?, 3]" in out and "4 variables" in out
    variables = told["variables"].values()
    assert sorted(x["shape"] for x in variables) == [[2], [3, 4], [4], [4, 2]]
    assert {x["dtype"] for x in variables} == {"float32"}


def test_variables_that_only_functions_hold(anyjax, tmp_path):
    tf = pytest.importorskip("tensorflow")
    module = tf.Module()
    module.w = tf.Variable([[2.0], [3.0]], name="w")
    spec = tf.TensorSpec([None, 2], name="x")
    module.serve = tf.function(lambda x: {"y": x @ module.w}, input_signature=[spec])
    tf.saved_model.save(module, str(tmp_path), signatures=module.serve)
    told = json.loads(anyjax("inspect", tmp_path, "--json")[1])
    assert told["variables"] == {"w": {"dtype": "float32", "shape": [2, 1]}}


def test_a_graph_without_signatures(anyjax, tmp_path):
    pytest.importorskip("tensorflow")
    (tmp_path / "frozen.pb").touch()
    for verb in ("run", "inspect", "explore"):
        code, _, err = anyjax(verb, tmp_path / "frozen.pb")
        assert code == 1 and "from_tensorflow(file)" in assert_four_lines(err)[-1]


FOREIGN = [
    ("run", "net.keras", ["--dtype", "float32"], "--dtype for a TensorFlow model"),
    ("run", "net.onnx", ["--signature", "x"], "--signature for an ONNX model"),
    ("run", "net.onnx", ["-p", "x", "-n", "3"], "--prompt and --max-new-tokens for an ONNX model"),
    ("inspect", "net.onnx", ["--task", "x"], "--task for an ONNX model"),
    ("explore", "net.keras", ["--no-weights"], "--no-weights for a TensorFlow model"),
    ("explore", "net.onnx", ["--length", "9"], "--length for an ONNX model"),
    ("run", DEMO, ["--signature", "x"], "--signature for a checkpoint"),
    ("generate", "saved", ["--dtype", "float32", "-p", "x"], "--dtype for a saved model"),
]


@pytest.mark.parametrize(("verb", "source", "options", "what"), FOREIGN)
def test_options_that_a_kind_does_not_have(
    anyjax, tmp_path, monkeypatch, verb, source, options, what
):
    monkeypatch.chdir(tmp_path)
    Path("saved").mkdir()
    Path("saved/model.json").write_text("{}")
    code, out, err = anyjax(verb, source, *options)
    assert (code, out) == (1, "")
    assert assert_four_lines(err)[0] == f"error: {what}"


def test_kinds_of_sources(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, file in {
        "net": "saved_model.pb",
        "kept": "model.json",
        "base": "config.json",
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / file).touch()
    kinds = {
        "net": "tensorflow",
        "kept": "saved",
        "base": "hf",
        "x.onnx": "onnx",
        "x.h5": "tensorflow",
    }
    for name, kind in kinds.items():
        assert kind_of(str(tmp_path / name)) == kind_of(f"~/{name}") == kind
        assert kind_of(f"~/{name}", ("hf",)) == "hf"
    assert kind_of("owner/name") == kind_of("x.mlir") == "hf"
