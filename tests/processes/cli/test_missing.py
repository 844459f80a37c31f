"""Verbs without packages: four lines with what to install; no more is asked for than is used."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import anyjax
from anyjax.errors import missing
from tests.cli.test_messages import assert_four_lines

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[3]
DEMO = "examples/tiny-llama"
OTHERS = "optax,tensorflow,keras,flax,orbax,grain,qwix,peft,matplotlib"


def without(packages, *arguments):
    done = subprocess.run(
        [sys.executable, "tests/processes/cli/missing_run.py", packages, *map(str, arguments)],
        cwd=ROOT, capture_output=True, text=True, timeout=240,
        env=os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


CASES = {
    "hf": ("torch", ["run", DEMO]),
    "hf ": ("torch", ["generate", DEMO, "-p", "x"]),
    "hf  ": ("torch,transformers", ["inspect", DEMO]),
    "hf   ": ("transformers", ["plan", DEMO, "--chips", "v6e-8"]),
    "train": ("optax", ["finetune", DEMO, "--data", "README.md", "--out", "nowhere"]),
    "train ": ("optax", ["plan", DEMO, "--chips", "v6e-8", "--length", "64", "--train"]),
    "torch": ("torch", ["ops", "linear"]),
    "tensorflow": ("tensorflow,keras", ["ops", "--tensorflow", "MatMul"]),
    "tensorflow ": ("tensorflow,keras", ["run", "some.keras"]),
    "cli": ("typer", ["ops", "linear"]),
    "cli ": ("rich", ["inspect", DEMO]),
}


@pytest.mark.parametrize("extra", CASES)
def test_what_to_install(extra):
    packages, arguments = CASES[extra]
    code, out, err = without(packages, *arguments)
    assert (code, out) == (1, ""), err
    lines = assert_four_lines(err)
    assert len(lines) == 4
    assert packages.split(",")[0] in lines[0]
    assert lines[-1].endswith(f'pip install "anyjax[{extra.strip()}]"')


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], []])
def test_help_needs_no_package(arguments):
    code, out, err = without("typer,rich,filelock", *arguments)
    assert (code, err) == (0, "")
    assert out.startswith(f"anyjax {anyjax.__version__}" if "--version" in arguments else "Usage: ")
    assert "--version" in arguments or 'pip install "anyjax[cli]"' in out


IMPORTS = {
    "anyjax.from_pretrained": "hf",
    "anyjax.from_torch": "torch",
    "anyjax.from_tensorflow": "tensorflow",
    "anyjax.from_onnx": "onnx",
    "anyjax.extract_jax": "torch",
    "anyjax.lowers": "torch",
    "anyjax.hf.pipeline": "hf",
    "anyjax.flax.source": "torch",
    "anyjax.flax.to_nnx": "flax",
    "anyjax.train.fit": "train",
    "anyjax.tensorflow.convert": "tensorflow",
    "anyjax.torch.on_jax": "torch",
}
PROGRAM = """
import sys
sys.modules.update(dict.fromkeys({absent}))
import anyjax
for name in {names}:
    try:
        eval(name)
    except anyjax.errors.MissingDependency as error:
        print(error.do)
"""


def test_names_of_python_say_what_to_install():
    absent = ("torch", "transformers", "tensorflow", "keras", "onnx", "flax", "optax", "orbax")
    program = PROGRAM.format(absent=absent, names=[*IMPORTS])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    expected = [f'pip install "anyjax[{extra}]"' for extra in IMPORTS.values()]
    assert done.stdout.splitlines() == expected, done.stderr


def test_no_more_than_is_used():
    code, out, err = without(f"{OTHERS},transformers,huggingface_hub", "ops", "aten.linear.default")
    assert code == 0, err
    assert "aten::linear" in out
    code, out, err = without(OTHERS, "plan", DEMO, "--chips", "v6e-8", "--length", "64")
    assert code == 0, err
    assert "peak per device" in out


def test_a_saved_model_needs_no_torch(tmp_path):
    model = anyjax.from_pretrained(ROOT / DEMO)
    ids = np.arange(8)[None]
    model.save(tmp_path / "saved", ids, use_cache=False, generate={"max_new_tokens": 4})
    given = tmp_path / "saved", "--tokenizer", DEMO, "-p", "def main("
    code, out, err = without(f"torch,{OTHERS}", "generate", *given)
    assert code == 0, err
    assert out.startswith("def main(")
    assert err == "the loop was saved for 4 new tokens, not 96\n"
    for verb in ("inspect", "run"):
        code, out, err = without(f"torch,transformers,{OTHERS}", verb, tmp_path / "saved")
        assert code == 0, err
        assert "LlamaForCausalLM" in out


def test_other_failures_stay():
    error = ImportError("cannot import name 'x' from 'mine'", name="mine")
    assert missing(error) is error
    assert "pip install" in str(missing(ModuleNotFoundError("No module named 'torch.nn'")))


def test_the_doctor_needs_the_core_alone():
    code, out, err = without(f"torch,transformers,{OTHERS}", "doctor")
    assert code == 0, err
    assert "the core works" in out and "its files are missing" in out
    assert "pip install --force-reinstall" in out
    for package in ("jax", "numpy", "safetensors"):
        code, out, err = without(package, "doctor")
        assert code == 1, err
        assert "the core does not work" in out and package in out.split("does not work")[1]
