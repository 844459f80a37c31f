"""The README's Python examples run as they stand, and both languages show the same code."""

import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
README, CHINESE = (
    (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh.md")
)
INSTALL = re.compile(r'^pip install "\.\[([\w,]+)\]"', re.MULTILINE)
CODE_BY = 12  # the line of README.md that is code at the latest


def blocks(page: str) -> list[str]:
    """The fenced blocks of a page, with their fences."""
    found = re.findall(r"^```.*?^```$", page, re.DOTALL | re.MULTILINE)
    assert page.count("```") == 2 * len(found), "a fence that is indented, or left open"
    return found


def examples(page: str) -> list[str]:
    """The code of the Python blocks."""
    start = "```python\n"
    return [b.removeprefix(start).removesuffix("```") for b in blocks(page) if b.startswith(start)]


def first_code(page: str) -> int:
    """The number of the first line of Python code, from 1."""
    return page[: page.index("```python\n")].count("\n") + 2


def run_with(extras: str, code: str, folder: Path) -> subprocess.CompletedProcess:
    """Runs code where these extras are installed and nothing else: tests.docs.only_extras."""
    (folder / "program.py").write_text(code, encoding="utf-8")
    command = [sys.executable, "-W", "ignore", "-m", "tests.docs.only_extras", extras, "program.py"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture
def at_the_root(monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.chdir(ROOT)


def test_the_example(at_the_root):
    _, code = examples(README)
    names: dict = {}
    exec(code, names)
    model, grads = names["model"], names["grads"]
    assert names["logits"].shape == names["expected"].shape == (1, 4, 2048)
    assert set(grads) == set(model.params)
    assert all(np.isfinite(grad).all() and np.any(grad) for grad in grads.values())
    lower = {name: value - 1e-4 * grads[name] for name, value in model.params.items()}
    loss, ids = names["loss"], names["ids"]
    assert loss(lower, ids) < loss(model.params, ids)
    np.testing.assert_allclose(names["each"][0], loss(model.params, ids), rtol=1e-5)
    assert names["each"].shape == (2,) and names["each"][0] != names["each"][1]
    assert names["text_ids"].shape == (1, 4 + 8)
    assert int(names["state"].step) == 1
    np.testing.assert_allclose(names["metrics"]["loss"], names["each"][0], rtol=1e-5)


def test_the_example_compares_for_real(at_the_root):
    wrong = examples(README)[1].replace("expected = ", "expected = 1.01 * ")
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        exec(wrong, {})


def test_one_screen():
    """Up to the picture and its program; what follows has 130 lines more at most."""
    first, rest = README.split("<!-- end of one program -->\n")
    assert len(first.splitlines()) < 40 and len(rest.splitlines()) < 130
    assert len(examples(README)[0].splitlines()) < 10
    assert len(examples(README)[1].splitlines()) < 40


@pytest.mark.processes
def test_the_first_example_runs_after_the_install_line(tmp_path):
    """In a folder of its own, with nothing but what the extras of that line bring."""
    pytest.importorskip("transformers")
    extras = INSTALL.search(README)[1]
    done = run_with(extras, examples(README)[0], tmp_path)
    assert done.returncode == 0, done.stderr
    (expected,) = [b for b in blocks(README) if b.startswith("```text\n")]
    lines = expected.splitlines()[1:-1]
    assert done.stdout.splitlines()[: len(lines)] == lines
    assert done.stderr == ""


@pytest.mark.processes
def test_a_package_that_the_install_line_lacks_is_seen(tmp_path):
    pytest.importorskip("optax")
    done = run_with("hf,cli", "import optax\n", tmp_path)
    assert "No module named 'optax'" in done.stderr
    assert run_with("hf,train", "import optax\n", tmp_path).returncode == 0


def test_the_landing_page_begins_as_the_readme_does():
    for name in ("index.md", "zh/index.md"):
        page = (ROOT / "docs" / name).read_text(encoding="utf-8")
        first = blocks(README)[:3]
        assert [b.replace("```bash", "```") for b in blocks(page)[:3]] == first
        assert page.count("{grid-item-card}") == 3


def test_links_lead_to_files():
    for page in (README, CHINESE):
        links = re.findall(r"\]\(([^)#:]+)\)", page)
        assert len(links) > 10
        assert [link for link in links if not (ROOT / link).exists()] == []


def test_both_languages_have_the_same_code():
    assert blocks(README) == blocks(CHINESE)
    assert len(blocks(README)) > len(examples(README)) > 0


def test_a_change_of_one_language_is_seen():
    for block in blocks(CHINESE):
        changed = block.removesuffix("```") + "\n```"
        assert blocks(README) != blocks(CHINESE.replace(block, changed))
        assert blocks(README) != blocks(CHINESE.replace(block, ""))


def test_code_comes_before_explanations():
    assert first_code(README) <= CODE_BY < first_code("\n" * CODE_BY + README)


def test_a_fence_that_is_left_open_is_seen():
    with pytest.raises(AssertionError, match="fence"):
        blocks(README.rstrip() + "\n```\n")


MAP = ROOT / "anyjax" / "torch" / "README.md"


def test_the_map_names_files_and_rooms_that_are_there():
    page = MAP.read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[\w/]+/)?\w+\.py)`", page)) - {"__init__.py"}
    here = [str(p.relative_to(ROOT)) for p in (ROOT / "anyjax").rglob("*.py")]
    here += [str(p.relative_to(ROOT)) for p in (ROOT / "tests").rglob("*.py")]
    assert len(named) > 15
    assert [name for name in named if not any(f"/{p}".endswith(f"/{name}") for p in here)] == []
    rooms = {p.parent.name for p in (MAP.parent).glob("*/__init__.py")}
    assert [room for room in rooms if room not in page] == []


def test_the_maps_example():
    pytest.importorskip("torch")
    import torch

    import anyjax

    (code,) = examples(MAP.read_text(encoding="utf-8"))
    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
    names: dict = {"model": anyjax.from_torch(net), "x": np.ones((1, 3), np.float32), "jax": jax}
    exec(code, names)
    assert {str(op): n for op, n in names["seen"].items()}["aten.relu.default"] == 1
