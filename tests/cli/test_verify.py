"""``anyjax verify``: the verdict, its exit codes, JSON."""

from __future__ import annotations

import json
import shutil

import numpy as np
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

import anyjax
from anyjax.cli import app
from anyjax.errors import NotWritten

LLAMA = "examples/tiny-llama"


def test_a_checkpoint_is_equal_to_its_original():
    result = CliRunner().invoke(app, ["verify", LLAMA, "--prompt", "def main("])
    assert result.exit_code == 0
    assert "equal up to float32 rounding" in result.output and "KL " in result.output


def test_json_has_every_module():
    result = CliRunner().invoke(app, ["verify", LLAMA, "--json"])
    report = json.loads(result.output)
    assert report["ok"] and len(report["modules"]) > 50
    assert report["modules"][-1]["path"] == ""


def test_a_page_is_written_beside_json(tmp_path):
    file = tmp_path / "pages" / "report.html"
    result = CliRunner().invoke(app, ["verify", LLAMA, "--json", "--html", str(file)])
    assert json.loads(result.stdout)["ok"] and result.stderr == f"page: {file}\n"
    assert "equal up to float32 rounding" in file.read_text()


def test_a_page_that_cannot_be_written(tmp_path):
    result = CliRunner().invoke(app, ["verify", LLAMA, "--html", str(tmp_path)])
    assert isinstance(result.exception, NotWritten)


def test_a_fault_ends_with_exit_code_3(monkeypatch, tmp_path):
    shutil.copytree(LLAMA, tmp_path / "faulty")
    file = tmp_path / "faulty/model.safetensors"
    weights = load_file(file)
    name = "model.layers.1.mlp.up_proj.weight"
    save_file({**weights, name: weights[name] * np.float32(1.01)}, file)
    healthy = anyjax.from_pretrained(LLAMA)
    verify = anyjax.verify
    monkeypatch.setattr(
        anyjax, "verify", lambda model, **inputs: verify(model, **inputs | {"reference": healthy})
    )
    result = CliRunner().invoke(app, ["verify", str(tmp_path / "faulty")])
    assert result.exit_code == 3
    assert "model.layers.1.mlp.up_proj adds an error of 1e-02" in result.output


def test_operators_and_a_folder_that_reproduces(monkeypatch, tmp_path):
    folder = str(tmp_path / "fault")
    args = ["verify", LLAMA, "--operators", r"layers\.0\.mlp$", "--reproduce", folder]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 0 and " operators" in result.output
    assert not (tmp_path / "fault").exists()
    changed = anyjax.from_pretrained(LLAMA).to_torch()
    changed.model.norm.variance_epsilon = 0.1
    verify = anyjax.verify
    monkeypatch.setattr(
        anyjax, "verify", lambda model, **inputs: verify(model, **inputs | {"reference": changed})
    )
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 3
    assert f"model.norm: python {folder}/reproduce.py" in result.stderr
    assert (tmp_path / "fault" / "reproduce.py").exists()
