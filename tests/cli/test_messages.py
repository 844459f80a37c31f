"""What the command line says about mistakes, terminals and interruptions: never a stack trace."""

import io
import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from anyjax import cli
from anyjax.errors import Unsupported

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "examples/tiny-llama"


NEEDED = {
    "export": ["-o", "nowhere"],
    "plan": ["--chips", "v6e-8"],
    "finetune": ["--data", ROOT / "README.md", "--out", "nowhere"],
}


@pytest.fixture
def anyjax(monkeypatch, capsys):
    """A call of the command line in this process: (exit code, output, errors)."""
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["anyjax", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        told = capsys.readouterr()
        assert "Traceback" not in told.out + told.err
        return ended.value.code, told.out, told.err

    return run


def changed(folder, weights=None, **config):
    """The demo checkpoint with other entries of its config, and weights that are changed."""
    shutil.copytree(DEMO, folder)
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | config))
    if weights:
        stored = folder / "model.safetensors"
        arrays = {k: v.copy() for k, v in load_file(stored).items()}
        weights(arrays)
        save_file(arrays, stored, {"format": "pt"})
    return folder


def assert_four_lines(said):
    """The lines of an error; a fifth has the command that shows its page."""
    *lines, see = said.strip().splitlines()
    assert re.fullmatch(r"  see:   anyjax explain \w+", see), said
    assert lines[0].startswith("error: ")
    assert all(re.match(r"  (where:|why: |do:  )  ?\S", line) for line in lines[1:]), said
    return lines


@pytest.mark.parametrize("verb", ["run", "generate"])
@pytest.mark.parametrize("dtype", ["float8", "int32", "nosuch"])
def test_dtypes(anyjax, verb, dtype):
    code, out, err = anyjax(verb, DEMO, "--dtype", dtype)
    assert (code, out) == (1, "")
    assert "float16, float32" in assert_four_lines(err)[-1]


CONFIGS = {
    "negative": ({"hidden_size": -64}, "hidden_size = -64"),
    "no layers": ({"num_hidden_layers": -2}, "num_hidden_layers = -2"),
    "part": ({"vision_config": {"patch_size": -3}}, "vision_config.patch_size = -3"),
    "text": ({"hidden_size": "abc"}, "'hidden_size'"),
    "fraction": ({"hidden_size": 1.5}, "'hidden_size'"),
    "nothing": ({"num_attention_heads": 0}, "ZeroDivisionError"),
    "activation": ({"hidden_act": "nosuch"}, "KeyError: 'nosuch'"),
    "table": ({"max_position_embeddings": "big"}, "'max_position_embeddings'"),
}


@pytest.mark.parametrize("verb", ["inspect", "generate"])
@pytest.mark.parametrize("name", CONFIGS)
def test_values_in_a_config(anyjax, tmp_path, verb, name):
    config, said = CONFIGS[name]
    code, _, err = anyjax(verb, changed(tmp_path / "changed", **config))
    assert code == 1
    assert said in err
    assert_four_lines(err)


TYPES = {
    "newer": ({"model_type": "lama", "transformers_version": "99.1"}, "transformers>=99.1"),
    "typing": ({"model_type": "lama", "transformers_version": "4.0"}, "near is llama"),
    "removed": ({"model_type": "realm"}, "transformers 4 had it"),
    "number": ({"model_type": 5}, "does not know the model type 5"),
}


@pytest.mark.parametrize("verb", ["inspect", "generate"])
@pytest.mark.parametrize("name", TYPES)
def test_unknown_model_types(anyjax, tmp_path, verb, name):
    config, said = TYPES[name]
    code, _, err = anyjax(verb, changed(tmp_path / "changed", **config))
    assert code == 1
    assert said in err
    assert len(assert_four_lines(err)) == 4


def test_missing_weights_are_listed_one_by_one(anyjax, tmp_path):
    def drop(arrays):
        for name in [*arrays][1:]:
            del arrays[name]

    code, _, err = anyjax("generate", changed(tmp_path / "changed", drop))
    lines = err.splitlines()
    count = int(re.search(r": (\d+) missing", lines[0])[1])
    assert (code, count > 20) == (1, True)
    assert all(line.startswith("    missing    ") for line in lines[1:21])
    assert lines[21] == f"    and {count - 20} more"
    assert lines[22].startswith("  where:")


def test_nan_on_both_sides_is_no_disagreement(anyjax, tmp_path):
    def spoil(arrays):
        arrays["model.norm.weight"][:] = np.nan

    code, out, err = anyjax("run", changed(tmp_path / "changed", spoil))
    assert code == 1
    assert "both give NaN (logits: 100% of its values)" in assert_four_lines(err)[0]
    assert "model.norm.weight" in err
    assert "disagree" not in out + err


def test_nan_on_one_side_is_one():
    from anyjax.cli._run import difference

    one, two = np.array([1.0, np.nan, np.inf]), np.array([1.0, 2.0, np.inf])
    assert difference({"x": one}, {"x": one}) == (0.0, "x")
    assert difference({"x": two}, {"x": np.array([1.0, 3.0, np.inf])}) == (0.5, "x")
    for want, got in ((one, two), (two, one)):
        assert difference({"x": want}, {"x": got})[0] == float("inf")
    assert difference({"x": one}, {"x": one[:1]})[0] == float("inf")
    turned = np.array([1 + 1j]), np.array([1 - 1j])
    assert difference({"x": turned[0]}, {"x": turned[1]})[0] > 1
    with pytest.raises(Unsupported, match="nothing to compare"):
        difference({"x": np.array(["text"])}, {"x": np.array(["text"])})


@pytest.mark.parametrize(("name", "near"), [("nosuchop", ""), ("linaer", "aten.linear.default")])
def test_unknown_operators(anyjax, name, near):
    code, out, err = anyjax("ops", name)
    assert (code, out) == (2, "")
    assert f"no operator has '{name}' in its name" in err
    assert near in err


def test_operators_of_two_frameworks(anyjax):
    code, out, err = anyjax("ops", "--tensorflow", "--onnx", "Conv")
    assert (code, out) == (1, "")
    assert assert_four_lines(err)[0] == "error: --tensorflow with --onnx"


def test_unknown_operators_of_tensorflow(anyjax):
    pytest.importorskip("tensorflow")
    code, _, err = anyjax("ops", "--tensorflow", "MatMull")
    assert code == 2 and "MatMul" in err


def test_more_tokens_than_positions(anyjax):
    code, out, err = anyjax("generate", DEMO, "-p", "def", "-n", "1000000")
    assert code == 0
    assert "the model has 512 positions: " in err and "not 1000000" in err
    code, out, err = anyjax("generate", DEMO, "-p", "def main " * 400)
    assert (code, out) == (1, "")
    assert "512 positions" in assert_four_lines(err)[0]


def test_a_prompt_that_is_no_text(anyjax):
    code, out, err = anyjax("generate", DEMO, "-p", b"d\xe9f".decode("utf-8", "surrogateescape"))
    assert (code, out) == (1, "")
    assert "not UTF-8" in assert_four_lines(err)[0]


@pytest.mark.parametrize("verb", ["generate", "run", "inspect"])
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_terminals_that_cannot_show_all_letters(anyjax, monkeypatch, verb, encoding):
    shown = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", shown)
    options = ("-p", "dé漢", "-n", "2") if verb != "inspect" else ()
    code, _, _ = anyjax(verb, DEMO, *options)
    assert code == 0
    if options:
        letter = "é".encode(encoding, "backslashreplace")
        assert b"d" + letter + rb"\u6f22" in shown.buffer.getvalue()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("arguments", [["--help"], ["generate", DEMO, "-n", "2"], ["ops"]], ids=str)
def test_a_full_disk(anyjax, monkeypatch, arguments):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        code, _, err = anyjax(*arguments)
    assert code == 1
    assert assert_four_lines(err)[0] == "error: No space left on device"


def test_a_full_disk_for_a_file(anyjax):
    code, _, err = anyjax("flax", DEMO, "-o", "/dev/full")
    assert code == 1
    assert assert_four_lines(err)[0] == "error: No space left on device"


@pytest.mark.parametrize("verb", ["run", "inspect", "generate", "export", "plan", "finetune"])
def test_onnx_files(anyjax, tmp_path, verb):
    """An empty one where it could be served, and what else takes it where it is no checkpoint."""
    file = tmp_path / "model.onnx"
    file.touch()
    code, out, err = anyjax(verb, file, *NEEDED.get(verb, ()))
    assert (code, out) == (1, "")
    is_graph = verb in ("run", "inspect")
    what = f"{file} is no ONNX model" if is_graph else "model.onnx is an ONNX model, no checkpoint"
    assert assert_four_lines(err)[0] == f"error: {what}"


@pytest.mark.parametrize("verb", ["export", "plan", "finetune"])
def test_what_is_saved_already(anyjax, tmp_path, verb):
    (tmp_path / "model.json").write_text("{}")
    code, out, err = anyjax(verb, tmp_path, *NEEDED[verb])
    assert (code, out) == (1, "")
    lines = assert_four_lines(err)
    assert lines[0] == f"error: {tmp_path.name} is a saved model, no checkpoint"
    assert "model.save or anyjax export wrote it" in lines[2] and "anyjax.load" in lines[3]
