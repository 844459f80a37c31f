"""`anyjax finetune`: trains, goes on where it was, and PEFT loads what it wrote."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import anyjax
from anyjax.cli import app
from anyjax.errors import AnyjaxError, NoData, WrongValue
from anyjax.train import load_adapter

DEMO = "examples/tiny-llama"
SHORT = ["--steps", "4", "--every", "2", "--length", "32", "--batch", "4", "--lora", "2"]


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    file = tmp_path_factory.mktemp("texts") / "notes.txt"
    file.write_text("\n\n".join(f"def f{i}(x):\n    return x + {i}\n" for i in range(40)))
    return str(file)


def call(*args):
    return CliRunner().invoke(app, ["finetune", DEMO, *args])


def test_trains_and_goes_on(texts, tmp_path):
    out = tmp_path / "out"
    first = call("--data", texts, "--out", str(out), *SHORT)
    assert first.exit_code == 0, first.output
    assert "step 4: loss" in first.output and "held out" in first.output
    lines = [json.loads(x) for x in (out / "metrics.jsonl").read_text().splitlines()]
    assert [x["step"] for x in lines if "loss" in x] == [1, 2, 3, 4]
    rates = [x["tokens_per_second"] for x in lines if "loss" in x]
    assert f"{np.median(rates):,.0f} tokens per second" in first.output
    assert all(0 < x["tokens"] <= 4 * 32 for x in lines if "loss" in x)
    again = call("--data", texts, "--out", str(out), *SHORT, "--steps", "6")
    assert again.exit_code == 0, again.output
    after = [json.loads(x) for x in (out / "metrics.jsonl").read_text().splitlines()]
    assert after[: len(lines)] == lines
    assert [x["step"] for x in after if "loss" in x] == [1, 2, 3, 4, 5, 6]
    base = anyjax.from_pretrained(DEMO)
    ids = np.arange(8, dtype=np.int32)[None]
    tuned = load_adapter(base, out)
    assert not np.allclose(tuned(ids).logits, base(ids).logits)
    pytest.importorskip("peft")
    theirs = anyjax.from_pretrained(out)  # by PEFT's own layers, on the model that the folder names
    np.testing.assert_allclose(theirs(ids).logits, tuned(ids).logits, atol=1e-4)


def test_dry_run(texts, tmp_path):
    out = tmp_path / "none"
    found = call("--data", texts, "--out", str(out), *SHORT, "--dry-run")
    assert found.exit_code == 0, found.output
    assert "params are trained" in found.output and "MB while a step runs" in found.output
    assert not out.exists()


@pytest.mark.parametrize(
    "content, error",
    [(b"", NoData), (b"\xff\xfe", WrongValue), (b"\n\n", NoData)],
)
def test_bad_data(content, error, tmp_path):
    file = tmp_path / "data.txt"
    file.write_bytes(content)
    found = call("--data", str(file), "--out", str(tmp_path / "out"))
    assert isinstance(found.exception, error) and isinstance(found.exception, AnyjaxError)


def test_targets_that_match_nothing(texts, tmp_path):
    found = call("--data", texts, "--out", str(tmp_path / "out"), "--targets", "nothing")
    assert isinstance(found.exception, WrongValue)


@pytest.mark.conformance
def test_quantized(texts, tmp_path):
    out = tmp_path / "out"
    found = call("--data", texts, "--out", str(out), *SHORT, "--quantize", "int4")
    assert found.exit_code == 0, found.output
    assert "matrices held as int4" in " ".join(found.output.split())
    adapted = load_adapter(anyjax.from_pretrained(DEMO), out)
    assert any(x.any() for name, x in adapted.params.items() if name.endswith("lora_B"))
    bad = call("--data", texts, "--out", str(out), *SHORT, "--quantize", "int5")
    assert isinstance(bad.exception, WrongValue) and "int8, fp8, int4, nf4" in str(bad.exception)
