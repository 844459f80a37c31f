"""``anyjax explore``: pages and JSON of models from all frameworks."""

from __future__ import annotations

import json
import re
import shutil
import webbrowser

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import anyjax
from anyjax.cli import app
from anyjax.errors import WrongArguments, WrongValue

LLAMA = "examples/tiny-llama"


def call(*arguments):
    result = CliRunner().invoke(app, ["explore", *map(str, arguments)])
    assert result.exit_code == 0, result.exception
    return result


def data_of(file):
    text = file.read_text(encoding="utf-8")
    return json.loads(re.findall(r'id="report">(.*?)</script>', text, re.S)[0])


def test_a_page(tmp_path):
    file = tmp_path / "pages" / "llama.html"
    result = call(LLAMA, "-o", file, "--mesh", "model=2", "--batch", "2", "--length", "8")
    assert result.stdout == "" and result.stderr == f"page: {file}\n"
    data = data_of(file)
    assert data["name"] == "LlamaForCausalLM" and data["origin"] == LLAMA
    assert data["sharding"]["mesh"] == {"model": 2} and data["sharding"]["plan"] == "tp"
    assert "[2, 8]" in data["inputs"]["input_ids"]
    assert all(x["statistics"] for x in data["arrays"])


def test_json_without_weights(tmp_path, monkeypatch):
    shutil.copy(f"{LLAMA}/config.json", tmp_path)
    monkeypatch.chdir(tmp_path)
    result = call(".", "--no-weights", "--json")
    data = json.loads(result.stdout)
    assert [x["statistics"] for x in data["arrays"]] == [None] * len(data["arrays"])
    assert data["modules"][0]["params"] == 951_424 and data["modules"][0]["products"] > 1e6
    assert not (tmp_path / "explore.html").exists()


def test_a_page_is_opened(tmp_path, monkeypatch):
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    file = tmp_path / "page.html"
    call(LLAMA, "--no-weights", "--open", "-o", file)
    assert opened == [file.as_uri()]


def test_saved_models(tmp_path):
    model = anyjax.from_torch(torch.nn.Sequential(torch.nn.Linear(3, 2)))
    model.save(tmp_path / "saved", np.ones((1, 3), np.float32))
    data = json.loads(call(tmp_path / "saved", "--json").stdout)
    assert not data["traced"] and "does not tell its operations" in data["notes"][0]
    assert [x["path"] for x in data["modules"]] == ["", "0"]


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras's own
def test_keras_files(tmp_path):
    keras = pytest.importorskip("keras")
    net = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(4)])
    net.save(tmp_path / "net.keras")
    data = json.loads(call(tmp_path / "net.keras", "--json", "--batch", "3").stdout)
    assert data["framework"] == "tensorflow" and data["modules"][0]["products"] == 2 * 3 * 8 * 4
    assert data["modules"][0]["params"] == 36 and all(x["statistics"] for x in data["arrays"])


def test_onnx_files(tmp_path):
    onnx = pytest.importorskip("onnx")
    from onnx import helper, numpy_helper

    value = lambda name, *shape: helper.make_tensor_value_info(name, 1, shape)
    weight = numpy_helper.from_array(np.ones((8, 4), np.float32), "w")
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="/fc/MatMul")
    graph = helper.make_graph([node], "net", [value("x", "n", 8)], [value("y", "n", 4)], [weight])
    file = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(file, tmp_path / "net.onnx")
    data = json.loads(call(tmp_path / "net.onnx", "--json", "--batch", "5").stdout)
    assert data["framework"] == "onnx" and data["modules"][1]["products"] == 2 * 5 * 8 * 4


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ((LLAMA, "--mesh", "model"), WrongArguments, "is no mesh"),
        ((LLAMA, "--mesh", "model=3"), WrongArguments, "of the weights over 3 chips"),
        ((LLAMA, "--length", "100000"), WrongArguments, "positions"),
        ((LLAMA, "--no-weights", "--adapter", "x"), WrongValue, "put on weights"),
        (("x.onnx", "--dtype", "float32"), WrongValue, "leave them out"),
    ],
)
def test_mistakes(arguments, kind, text):
    result = CliRunner().invoke(app, ["explore", *arguments])
    assert isinstance(result.exception, kind) and text in str(result.exception)
