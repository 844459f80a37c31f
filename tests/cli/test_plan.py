"""``tojax plan`` in processes of its own, and the figures of docs/scaling.md."""

import importlib.util
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.cli.test_cli import ROOT, tojax
from tojax.cli import app
from tojax.cli._plan import mesh_of, one_of
from tojax.errors import TojaxError, WrongArguments

DEMO = "examples/tiny-llama"


def scaling():
    """docs/scaling.py as a module."""
    spec = importlib.util.spec_from_file_location("scaling", ROOT / "docs" / "scaling.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_help_teaches():
    code, out, _ = tojax("plan", "--help")
    assert code == 0
    for word in ("--chips", "--train", "--decode", "--remat", "Example", "utilization"):
        assert word in out


def test_the_demo(tmp_path):
    """Compiled for eight virtual devices, which this process does not have."""
    page = tmp_path / "plan.html"
    asked = ("--chips", "cpu-8", "--batch", "8", "--length", "64", "--html", str(page))
    code, out, err = tojax("plan", DEMO, *asked)
    assert code == 0, err
    for word in ("peak per device", "compiled peak", "all-reduce (model)", "tokens/s"):
        assert word in out
    assert "peak per device" in page.read_text()


MISTAKES = {
    "has 16 chips, v6e-8 has 8": ("--chips", "v6e-8", "--mesh", "model=4,data=4"),
    "beyond the model's": ("--chips", "v6e-8", "--length", "1000000"),
    "of the weights over 7": ("--chips", "v6e-7", "--length", "64"),
    "no config.json": ("--chips", "v6e-8"),
}


def test_a_mistake_in_a_process_of_its_own():
    code, out, err = tojax("plan", DEMO, "--chips", "v9-8")
    assert code == 1 and out == ""
    assert "there is no chip 'v9-8'" in err and len(err.strip().splitlines()) == 4


@pytest.mark.parametrize("said", MISTAKES)
def test_mistakes_are_four_lines(said, tmp_path):
    where = tmp_path if said == "no config.json" else ROOT / DEMO
    found = CliRunner().invoke(app, ["plan", str(where), *MISTAKES[said]])
    assert isinstance(found.exception, TojaxError)
    assert said in str(found.exception) and len(str(found.exception).splitlines()) == 4


def test_options():
    assert mesh_of("model=4, data=2") == {"model": 4, "data": 2} and mesh_of(None) is None
    assert one_of(train=False, decode=True) == "decode" and one_of() == "forward"
    for wrong in ("model", "model=0", "a=2,a=2", ""):
        with pytest.raises(WrongArguments):
            mesh_of(wrong)
    with pytest.raises(WrongArguments, match="train and --decode"):
        one_of(train=True, decode=True)


def test_the_page_has_every_model():
    page = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    made = scaling()
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
    made = scaling()
    page = Path(made.PAGE).read_text(encoding="utf-8")
    found = made.ROWS["7b"][rows]
    for row in found if isinstance(rows, slice) else [found]:
        assert made.line("7b", row) in page
