"""The programs of docs/gallery.md run as they stand, draw, and show what the page says."""

import os
import re
import runpy
import subprocess
from pathlib import Path

import jax
import pytest

from tests.docs.pages import ROOT
from tests.sampling import further

PAGE = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"literalinclude\} \.\./examples/(\w+)\.py", PAGE)
NUMBER = re.compile(r"-?\d+(?:[,.]\d+)*(?:e[+-]\d+)?")
COMPILERS = ROOT / ".compat" / "compilers" / "bin" / "python"
# What is to be true of the numbers that a program prints. Slow ones take half a minute or more.
QUICK = {
    "torch_training_step": lambda first, last, right: last < first / 10 and right > 95,
    "gaussian_process": lambda first, last, noise: last < 0 < first and 0.03 < noise < 0.2,
    "savedmodel_gradient": lambda *x: x[::2] == (-8, 0, 8) and max(x[1::2]) < 1e-4,
}
SLOW = {
    "hmc": lambda between, among: between > 5 * among,
    "molecular_dynamics": lambda energy, melts: energy < -43 and 0.2 < melts < 0.32,
    "finetune_onnx": lambda before, after: before < 30 and after > 85,
    "diffusion_pipeline": lambda first, last: last < first / 10,
    "find_a_bug": lambda layer, error, line: layer == 1 and error > 0.01 and line == 20,
    "peft_both_ways": lambda made, jax, steps, trained, back: (
        made == pytest.approx(jax, abs=2e-4) and trained == pytest.approx(back, abs=2e-4) < jax / 4
    ),
    "llama_on_eight_devices": lambda tp, _, fsdp, *rest: tp < 51 and fsdp < 26 and rest,
    "flax_edited_llama": lambda _, apart, __, whole, ___, ____: apart < 1e-5 < whole,
}
SHOWN = QUICK | SLOW
NEEDS = {
    "diffusion_pipeline": "diffusers", "finetune_onnx": "skl2onnx", "flax_edited_llama": "flax",
    "find_a_bug": "transformers", "llama_on_eight_devices": "transformers",
    "peft_both_ways": "peft", "savedmodel_gradient": "tensorflow",
}  # fmt: skip


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", [*QUICK, *further(*SLOW)])
def test_it_shows_what_it_says(name, capsys, monkeypatch, tmp_path):
    for package in ("matplotlib", NEEDS.get(name, "torch")):
        pytest.importorskip(package)
    picture = tmp_path / "picture.png"
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("sys.argv", [name, str(picture)])
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", os.environ["JAX_NUM_CPU_DEVICES"])
    try:
        runpy.run_path(f"examples/{name}.py", run_name="__main__")
    finally:
        jax.config.update("jax_enable_x64", False)
        __import__("matplotlib.pyplot").pyplot.close("all")
    lines = capsys.readouterr().out.replace("%", " ")
    assert SHOWN[name](*(float(x.replace(",", "")) for x in NUMBER.findall(lines))), lines
    assert picture.stat().st_size > 1000


@pytest.mark.processes
@pytest.mark.conformance
def test_an_executable_for_a_tpu(tmp_path):
    if not COMPILERS.exists():
        pytest.skip("the compilers are not here: make .compat/compilers/.ready")
    picture = tmp_path / "picture.png"
    done = subprocess.run(
        [COMPILERS, "-W", "ignore", "examples/executable_for_a_tpu.py", picture],
        env=os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""},
        cwd=ROOT, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "an executable for TPU v6 lite" in done.stdout
    (cycles,) = re.findall(r"^([\d,]+) cycles", done.stdout, re.M)
    assert int(cycles.replace(",", "")) > 1000
    assert float(re.findall(r"(\S+) of difference", done.stdout)[0]) < 1e-2
    assert picture.stat().st_size > 1000


def test_the_page_has_twelve_programs_of_forty_lines_and_their_pictures():
    assert {*PROGRAMS} == {*SHOWN, "executable_for_a_tpu"} and len(PROGRAMS) == 12
    for name in PROGRAMS:
        text = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 40, name
        assert f"python examples/{name}.py" in text
        (picture,) = re.findall(rf":img-top: (pictures/{name}\.\w+)$", PAGE, re.M)
        assert 1000 < Path(ROOT, "docs", picture).stat().st_size < 150_000, picture
    targets = re.findall(r"^:link: (\S+)$", PAGE, re.M)
    assert [f"({x})=" in PAGE for x in targets] == [True] * 12
