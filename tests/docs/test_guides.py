"""The Python blocks and cells of docs/guides run, page by page in one namespace."""

from __future__ import annotations

import pytest

from tests.docs.pages import ROOT, blocks, run

pytest.importorskip("transformers")

FOLDER = ROOT / "docs" / "guides"
# Blocks of several-machines.md are an excerpt of a script, which tests/processes runs as a whole.
PAGES = sorted({x.stem for x in FOLDER.glob("*.md")} - {"index", "several-machines"})
NEEDS = {"adding-an-operator": ("tensorflow", "onnx"), "adding-a-frontend": ("sklearn", "optax")}


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
