"""What the verbs print: tables for eyes and pipes, JSON for programs, prompts from anywhere."""

import io
import shutil
import sys

import pytest

from anyjax.cli import _shown
from tests.cli.test_messages import DEMO, anyjax, assert_four_lines

__all__ = ["anyjax"]  # the fixture


def test_version(anyjax):
    import anyjax as package

    assert anyjax("--version") == (0, f"anyjax {package.__version__}\n", "")


def test_pipes_get_whole_names(anyjax):
    code, out, _ = anyjax("ops", "linear")
    assert code == 0
    assert "…" not in out
    assert "aten._upsample_bilinear2d_aa.default" in out


def test_names_are_cut_last(capsys):
    from rich.console import Console

    table = _shown.table(["name", "remark"], [("model.layers.0.weight", "word " * 20)])
    Console(width=40).print(table)
    assert "model.layers.0.weight" in capsys.readouterr().out


def test_times_beside_each_other():
    assert _shown.speed(2.0, 2.0) == "1.0 times as fast"


def test_a_prompt_from_standard_input(anyjax, monkeypatch):
    said = anyjax("generate", DEMO, "-p", "import os", "-n", "4")
    monkeypatch.setattr(sys, "stdin", io.StringIO("import os\n"))
    assert anyjax("generate", DEMO, "-p", "-", "-n", "4") == said


def test_a_terminal_is_asked_for_a_prompt(anyjax, monkeypatch):
    said = anyjax("generate", DEMO, "-p", "import os", "-n", "4")[1]
    typed = io.StringIO("import os\nmore\n")
    typed.isatty = lambda: True
    monkeypatch.setattr(sys, "stdin", typed)
    code, out, err = anyjax("generate", DEMO, "-n", "4")
    assert (code, out) == (0, said)
    assert err.startswith("prompt: ")


def test_draws_have_a_seed(anyjax):
    draw = lambda seed: anyjax(
        "generate", DEMO, "-p", "def", "-n", "8", "--temperature", "1.5", "--seed", seed
    )
    assert draw(3) == draw(3)
    assert draw(3) != draw(4)


@pytest.mark.parametrize("verb", ["inspect", "flax", "generate", "run"])
def test_an_empty_folder_is_told_at_once(anyjax, tmp_path, verb, monkeypatch):
    for name in ("torch", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)  # nothing heavy may be imported for it
    code, _, err = anyjax(verb, tmp_path)
    assert code == 1
    assert "has no config.json" in assert_four_lines(err)[0]


@pytest.mark.parametrize(
    "path, said",
    [("torch.nn:Linear", "give an instance"), ("builtins:dict", "nn.Module")],
)
def test_a_class_that_gives_no_module(anyjax, path, said):
    code, _, err = anyjax("flax", path, "--input", "2x3")
    assert code == 1
    assert said in assert_four_lines(err)[-1]


def test_a_language_model_without_a_tokenizer(anyjax, tmp_path):
    folder = shutil.copytree(DEMO, tmp_path / "bare")
    for file in folder.glob("tokenizer*"):
        file.unlink()
    code, out, err = anyjax("run", folder)
    assert code == 0, err
    assert "largest difference to PyTorch" in out and "no tokenizer: token ids are made up" in out
    code, _, err = anyjax("run", folder, "--prompt", "import os")
    assert code == 1 and "has no tokenizer that can be read" in assert_four_lines(err)[0]
