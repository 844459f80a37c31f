"""The command line on ONNX files."""

import json

import numpy as np
import onnx
import pytest

from tests.onnx.agree import model, normal


@pytest.fixture
def file(tmp_path):
    text = "net (float[n, 8] x) => (float[n, 3] y) { h = MatMul(x, w) y = Softmax(h) }"
    onnx.save(model(text, weights={"w": normal(8, 3)}), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


@pytest.fixture
def anyjax(monkeypatch, capsys):
    """A call of the command line in this process: (exit code, output)."""
    import sys

    from anyjax import cli

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["anyjax", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code, capsys.readouterr().out

    return run


def test_run(anyjax, file):
    code, out = anyjax("run", file, "--json")
    figures = json.loads(out)
    assert code == 0 and figures["agree"] and figures["parameters"] == 24
    assert "following runs" in figures["seconds of onnxruntime"]
    code, out = anyjax("run", file)
    assert code == 0 and "largest difference to onnxruntime" in out and "float32[1, 8]" in out


def test_inspect(anyjax, file):
    code, out = anyjax("inspect", file, "--json")
    about = json.loads(out)
    assert code == 0 and about["inputs"] == {"x": "float[n, 8]"} and about["outputs"] == ["y"]
    assert about["params"] == ["w"] and about["operators"] == {"MatMul": 1, "Softmax": 1}
    assert "tensor" in anyjax("inspect", file)[1]


def test_ops(anyjax):
    code, out = anyjax("ops", "--onnx", "--json")
    rows = {x["op"]: x["served"] for x in json.loads(out)}
    assert code == 0 and rows["Conv"] == "ops.convolution.conv" and rows["Loop"] == "the engine"
    assert rows["HannWindow"] == "the body that ONNX has for it" and not rows["StringConcat"]
    assert np.mean([bool(x) for x in rows.values()]) > 0.9
    assert '@anyjax.onnx.lowers("StringConcat")' in anyjax("ops", "--onnx", "StringConcat")[1]
