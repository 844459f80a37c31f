"""The Python blocks and cells of docs/guides run, page by page in one namespace."""

from __future__ import annotations

import re

import pytest

from tests.docs.error_pages import CLASSES
from tests.docs.pages import ROOT, blocks, run

pytest.importorskip("transformers")

FOLDER = ROOT / "docs" / "guides"
# Blocks of several-machines.md are an excerpt of a script, which tests/processes runs as a whole.
PAGES = sorted({x.stem for x in FOLDER.glob("*.md")} - {"index", "several-machines"})
NEEDS = {
    "questions": ("optax",),
    "adding-an-operator": ("tensorflow", "onnx"),
    "adding-a-frontend": ("sklearn", "optax"),
}


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.filterwarnings("default")
def test_the_code_of_a_page_runs(name, monkeypatch, tmp_path):
    for package in NEEDS.get(name, ()):
        pytest.importorskip(package)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)  # pages write files
    names: dict = {"__name__": "__main__"}  # dataclasses look for their module
    for block in blocks((FOLDER / f"{name}.md").read_text(encoding="utf-8")):
        run(block, names, f"docs/guides/{name}.md")


def test_every_guide_is_in_the_index():
    index = (FOLDER / "index.md").read_text(encoding="utf-8")
    pages = {x.stem for x in FOLDER.glob("*.md")} - {"index"}
    assert {x for x in index.splitlines() if x in pages} == pages


QUESTIONS = (FOLDER / "questions.md").read_text(encoding="utf-8")


def test_each_error_has_a_way_out():
    rows = QUESTIONS[QUESTIONS.index("## Which error has which way out?") :]
    named = re.findall(r"\[`(\w+)`\]\(\.\./errors/(\w+)\.md\)", rows)
    assert all(name == page for name, page in named)
    assert sorted(name for name, _ in named) == sorted({*CLASSES} - {"AnyjaxError"})


def test_another_schedule_is_seen():
    pytest.importorskip("optax")
    names: dict = {}
    (code,) = (block for block in blocks(QUESTIONS) if "pairs = {" in block.code)
    wrong = code.code.replace("decay_rate=0.9", "decay_rate=0.91")
    with pytest.raises(AssertionError, match="ExponentialLR"):
        exec("import numpy as np, jax.numpy as jnp, torch\n" + wrong, names)
    rows = re.findall(r"^\| `(\w+)` \|", QUESTIONS, re.MULTILINE)
    assert rows == [*names["pairs"], "ReduceLROnPlateau"]
