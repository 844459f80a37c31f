"""The change log of the newest release: its code runs, and what it names is there."""

import importlib.util
import inspect
import re

import pytest

import anyjax
from tests.docs.pages import ROOT, blocks, run

CHANGES = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
NEWEST = re.split(r"^## \[", CHANGES, flags=re.M)[1]
SPANS = [" ".join(x.split()) for x in re.findall(r"(?<!`)`([^`]+)`(?!`)", NEWEST)]
FORMER = {"docs/versions.md"}  # it says where that is now


@pytest.mark.filterwarnings("default")
def test_the_code_runs_in_an_empty_folder(monkeypatch, tmp_path):
    for package in ("transformers", "optax"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in blocks(NEWEST):
        run(block, names, "CHANGELOG.md")
    assert names["metrics"]["loss"] > 0 and len(names["layers"]) == 2
    assert "anyjax" in (tmp_path / "checkpoint" / "README.md").read_text()


def public(path):
    value = anyjax
    for name in path.split(".")[1:]:
        value = getattr(value, name)
    return value


def test_names_are_there_and_take_the_arguments():
    for package in ("torch", "transformers", "tensorflow", "flax", "optax"):
        pytest.importorskip(package)
    names = {x for span in SPANS for x in re.findall(r"(?<!-m )\banyjax(?:\.\w+)+", span)}
    assert len(names) > 50
    calls = [re.match(r"(anyjax(?:\.\w+)+)\((.*)\)", span) for span in SPANS]
    found = [(public(x[1]), re.findall(r"(\w+)=", x[2])) for x in calls if x]
    for function, keywords in [*((public(x), []) for x in names), *found]:
        parameters = inspect.signature(function).parameters if keywords else {}
        assert {*keywords} <= {*parameters} or "options" in parameters, (function, keywords)


def test_files_modules_and_targets_are_there():
    for span in SPANS:
        files = re.findall(r"\b(?:docs|examples|benchmarks|proof|release)/[\w./-]+", span)
        files += [f"examples/{x}" for x in re.findall(r"^\w+\.py$", span)]
        assert all((ROOT / x).exists() or x in FORMER for x in files), span
        modules = re.findall(r"python -m ([\w.]+)", span)
        assert all(map(importlib.util.find_spec, modules)), span
        targets = re.findall(r"^make (\w[\w-]*)", span)
        makefile = (ROOT / "Makefile").read_text()
        assert all(re.search(rf"^{x}( \w+)*:", makefile, re.M) for x in targets), span


def test_verbs_have_the_options():
    pytest.importorskip("typer")
    from typer.main import get_command

    from anyjax.cli import app

    group = get_command(app)
    verbs = [re.fullmatch(r"anyjax ((?:\w+)(?: \| \w+)*)( .*)?", span) for span in SPANS]
    assert sum(map(bool, verbs)) > 15
    for match in filter(None, verbs):
        for verb in match[1].split(" | "):
            command = group.commands[verb]
            options = {x for p in command.params for x in (*p.opts, *p.secondary_opts)}
            assert {*re.findall(r"--[\w-]+", match[2] or "")} <= options, match[0]
