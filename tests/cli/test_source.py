"""The verbs on adapters and on what was saved, from any working directory."""

import json
import shutil
import warnings
from pathlib import Path

import pytest

import anyjax as package
from anyjax.cli import _source
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
    assert _source.resolve(str(moved)).path == tmp_path / "models" / "base"


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
    made = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2)])
    place = tmp_path / ("net" if form == "folder" else "net.keras")
    with warnings.catch_warnings(action="ignore"):  # Keras's own, of numpy
        made.export(place, verbose=False) if form == "folder" else made.save(place)
        code, out, err = anyjax("inspect", place)
        told = json.loads(anyjax("inspect", place, "--json")[1])
    assert code == 0, err
    assert "float32[?, 3]" in out and "2 variables" in out
    assert [3, 2] in [x["shape"] for x in told["variables"].values()]
