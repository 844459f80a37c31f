"""The page for coding agents: its blocks run from top to bottom, and its names are there."""

import re

import pytest

import anyjax
from tests.docs.pages import ROOT, blocks, run

PAGE = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")


@pytest.mark.filterwarnings("default")
def test_the_code_runs(monkeypatch, capsys):
    pytest.importorskip("transformers")
    monkeypatch.chdir(ROOT)
    names: dict = {}
    for block in blocks(PAGE):
        run(block, names, "docs/agents.md")
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("LlamaForCausalLM beside torch: equal up to float32 rounding")
    assert re.fullmatch(r"[\d,]+ params, loss \d+\.\d+", printed[1])


def test_the_names_are_there():
    for name in re.findall(r"`anyjax\.(\w+)", PAGE):
        assert hasattr(anyjax, name), name
    methods = set(re.findall(r"`model\.(\w+)\(", PAGE))
    assert (
        {"init", "to_torch", "save_pretrained"}
        <= methods
        <= {*dir(anyjax.Model), "save_pretrained"}
    )


def test_the_site_has_it():
    assert "\nagents\n" in (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
