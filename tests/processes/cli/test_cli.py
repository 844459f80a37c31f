"""The command line in processes of its own, on the checkpoint that the project ships."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[3]
DEMO = "examples/tiny-llama"


def anyjax(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "anyjax", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=240, env=os.environ | {"COLUMNS": "200"},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_help_teaches():
    code, out, _ = anyjax("--help")
    assert code == 0
    for verb in ("run", "generate", "inspect", "ops"):
        assert verb in out
        code, said, _ = anyjax(verb, "--help")
        assert code == 0
        assert "Usage: python -m anyjax " + verb in said


def test_help_imports_no_framework():
    code = """if True:
        import sys, anyjax.cli
        try:
            anyjax.cli.app(["--help"])
        except SystemExit:
            print({"torch", "jax"} & set(sys.modules))
    """
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip().endswith("set()")


def test_run_is_the_main_job():
    code, out, err = anyjax("run", DEMO, "--prompt", "def main(", "--max-new-tokens", "24")
    assert code == 0, err
    assert "LlamaForCausalLM" in out
    assert "largest difference to PyTorch" in out
    for step in ("convert", "trace", "compile", "first run", "following runs"):
        assert step in out
    assert "\ndef main(" in out
    assert "first token" in out


@pytest.mark.conformance
def test_run_of_a_saved_model(tmp_path):
    tf = pytest.importorskip("tensorflow")
    module = tf.Module()
    module.w = tf.Variable([[2.0], [3.0]], name="w")
    spec = tf.TensorSpec([None, 2], name="x")
    module.serve = tf.function(lambda x: {"y": x @ module.w}, input_signature=[spec])
    tf.saved_model.save(module, str(tmp_path), signatures=module.serve)
    code, out, err = anyjax("run", str(tmp_path), "--batch", "3")
    assert code == 0, err
    assert "inputs: float32[3, 2]" in out
    assert "TensorFlow" in out and "following runs" in out
    code, _, err = anyjax("run", str(tmp_path), "--signature", "no_such")
    assert code == 1
    assert "serving_default" in err


@pytest.mark.conformance
def test_generate_prints_the_text_alone():
    code, out, err = anyjax("generate", DEMO, "--prompt", "import os", "--max-new-tokens", "8")
    assert code == 0, err
    assert out.startswith("import os")


@pytest.mark.conformance
def test_inspect_needs_no_weights(tmp_path):
    (tmp_path / "config.json").write_text((ROOT / DEMO / "config.json").read_text())
    code, out, err = anyjax("inspect", str(tmp_path))
    assert code == 0, err
    assert "no weights here" in out
    assert "model.embed_tokens" in out
    assert "aten.linear.default" in out
    assert "every operator can be lowered" in out


@pytest.mark.conformance
def test_flax_writes_source_and_compares_it(tmp_path):
    file = tmp_path / "llama.py"
    code, _, err = anyjax("flax", DEMO, "-o", str(file))
    assert code == 0, err
    assert "class LlamaAttention(nnx.Module):" in file.read_text()
    assert "outputs differ from torch's by" in err
    code, _, err = anyjax("flax", "tests.flax.codegen.models:MLP", "-o", str(file))
    assert code == 1 and "--input" in err
    given = "tests.flax.codegen.models:CNN", "--input", "2x3x16x16", "--style", "linen"
    code, _, err = anyjax("flax", *given, "-o", str(file))
    assert code == 0, err
    assert "class CNN(nn.Module):" in file.read_text()
    assert "outputs differ from torch's by" in err


def test_flax_without_its_check(tmp_path):
    file = tmp_path / "odd.py"
    given = "tests.flax.codegen.check.test_verify:Trains", "--input", "2x4", "-o", str(file)
    code, _, err = anyjax("flax", *given)
    assert code == 1 and "no training mode" in err and not file.exists()
    code, _, err = anyjax("flax", *given, "--no-check")
    assert code == 0, err
    assert "class Trains(nnx.Module):" in file.read_text()
    assert "not compared with torch" in err and not file.with_suffix(".npz").exists()


@pytest.mark.conformance
def test_ops_lists_what_serves_each_operator_and_how_well():
    code, out, _ = anyjax("ops", "aten.linear.default")
    assert code == 0
    assert "aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor" in out
    code, out, _ = anyjax("ops", "--markdown")
    assert "| `aten.linear.default` | `ops.matmul.linear` | yes | yes | yes |" in out
    assert "| `aten.nonzero.default` | `ops.index.nonzero` | outside jit |" in out


@pytest.mark.conformance
def test_ops_lists_what_serves_each_operator_of_tensorflow():
    code, out, _ = anyjax("ops", "--tensorflow", "XlaDot")
    assert code == 0
    assert "TensorFlow's bridge to XLA" in out
    code, out, _ = anyjax("ops", "--tensorflow", "--markdown")
    assert "| `MatMul` | numeric | `ops.matmul.matmul` |" in out
    assert "| `While` | numeric | the engine |" in out
    assert "| `PyFunc` | Python |  |" in out


@pytest.mark.parametrize("verb", ["run", "generate", "inspect"])
def test_mistakes_are_four_lines_and_exit_code_1(verb, tmp_path):
    code, out, err = anyjax(verb, str(tmp_path))
    assert code == 1
    assert out == ""
    lines = err.strip().splitlines()
    assert lines[0] == f"error: {tmp_path.name} is no checkpoint: it has no config.json"
    assert len(lines) == 5
