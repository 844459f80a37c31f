"""What a release says of itself is the same everywhere: version, requirements, change log."""

import re
import tomllib
from pathlib import Path

import pytest

import anyjax

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RENAMED = {"torch": "pytorch", "flatbuffers": "python-flatbuffers"}  # on conda's channels


def bounds(lines: list[str]) -> dict[str, str]:
    """Lower bounds by conda's name of the package."""
    pairs = [re.fullmatch(r"([\w-]+)(?:\[\w+\])? ?>=([\d.]+)", line) for line in lines]
    return {RENAMED.get(m[1], m[1]): m[2] for m in pairs if m}


def test_one_version():
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert PROJECT["version"] == anyjax.__version__
    assert f"\nversion: {anyjax.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    headings = re.findall(r"^## \[([\w.]+)\]", changes, re.MULTILINE)
    assert anyjax.__version__ in headings[:2]


def test_the_conda_recipe_asks_for_what_the_project_does():
    yaml = pytest.importorskip("yaml")
    recipe = yaml.safe_load((ROOT / "release" / "conda" / "recipe.yaml").read_text())
    assert recipe["context"]["version"] == anyjax.__version__
    assert recipe["about"]["license"] == PROJECT["license"]
    assert recipe["about"]["summary"] == PROJECT["description"]
    needs = recipe["requirements"]
    python = f"python {PROJECT['requires-python']}"
    assert python in needs["run"] and python in needs["host"]
    run = bounds(needs["run"])
    run.pop("python")
    assert run == bounds(PROJECT["dependencies"])
    extras = bounds([x for lines in PROJECT["optional-dependencies"].values() for x in lines])
    optional = bounds(needs["run_constraints"])
    assert optional and optional.items() <= extras.items()
    script, module = recipe["build"]["python"]["entry_points"][0].split(" = ")
    assert PROJECT["scripts"][script] == module


@pytest.mark.parametrize("page", ["start.md", "zh/start.md"])
def test_the_start_page_has_each_extra(page):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    first = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    named = {name for cell in first for name in re.findall(r"`(\w+)`", cell)}
    extras = {*PROJECT["optional-dependencies"]} - {"dev", "docs", "all"}
    assert extras <= named and '".[all]"' in text


def test_each_extra_has_a_probe():
    probes = {file.stem for file in (ROOT / "release" / "probes").glob("*.py")}
    extras = {*PROJECT["optional-dependencies"]} - {"dev", "docs"}
    assert probes == extras | {"core", "frontends"}
