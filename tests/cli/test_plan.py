"""``anyjax plan``, and the figures of docs/guides/planning.md."""

import importlib.util
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anyjax.cli import app
from anyjax.cli._plan import mesh_of, one_of
from anyjax.errors import AnyjaxError, WrongArguments

ROOT = Path(__file__).parents[2]
DEMO = "examples/tiny-llama"


def planning():
    """docs/guides/planning.py as a module."""
    spec = importlib.util.spec_from_file_location("planning", ROOT / "docs/guides/planning.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MISTAKES = {
    "has 16 chips, v6e-8 has 8": ("--chips", "v6e-8", "--mesh", "model=4,data=4"),
    "beyond the model's": ("--chips", "v6e-8", "--length", "1000000"),
    "of the weights over 7": ("--chips", "v6e-7", "--length", "64"),
    "no config.json": ("--chips", "v6e-8"),
}


@pytest.mark.parametrize("said", MISTAKES)
def test_mistakes_are_four_lines(said, tmp_path):
    where = tmp_path if said == "no config.json" else ROOT / DEMO
    found = CliRunner().invoke(app, ["plan", str(where), *MISTAKES[said]])
    assert isinstance(found.exception, AnyjaxError)
    assert said in str(found.exception) and len(str(found.exception).splitlines()) == 5


def test_options():
    assert mesh_of("model=4, data=2") == {"model": 4, "data": 2} and mesh_of(None) is None
    assert one_of(train=False, decode=True) == "decode" and one_of() == "forward"
    for wrong in ("model", "model=0", "a=2,a=2", ""):
        with pytest.raises(WrongArguments):
            mesh_of(wrong)
    with pytest.raises(WrongArguments, match="train and --decode"):
        one_of(train=True, decode=True)


def test_the_page_has_every_model():
    page = (ROOT / "docs/guides/planning.md").read_text(encoding="utf-8")
    made = planning()
    for name, rows in made.ROWS.items():
        part = page.split(f"<!-- {name} -->")[1].split("<!-- end -->")[0]
        lines = [x for x in part.splitlines() if x.startswith("| ")]
        assert len(lines) == 2 + len(rows), name
        for line, (what, chips, plan, batch, length, _) in zip(lines[2:], rows):
            cells = [x.strip() for x in line.strip("|").split("|")]
            assert cells[0].startswith(what)
            assert cells[1:4] == [chips, plan, f"{batch} x {length}"]


FIGURES = [0, 2, pytest.param(slice(None), marks=pytest.mark.conformance)]


@pytest.mark.parametrize("rows", FIGURES, ids=str)
def test_figures_are_those_of_the_command(rows):
    """Of the 7B model, as they stand in the page."""
    made = planning()
    page = Path(made.PAGE).read_text(encoding="utf-8")
    found = made.ROWS["7b"][rows]
    for row in found if isinstance(rows, slice) else [found]:
        assert made.line("7b", row) in page
