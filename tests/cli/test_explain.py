"""``anyjax explain``: every page, in a terminal and in a pipe, with and without the packages."""

import re
import sys

import pytest
import rich.console
from typer.testing import CliRunner

from anyjax import __main__, errors, explanations
from anyjax.cli import _explain, app, writing
from anyjax.errors import WrongValue

NAMES = [*explanations.summaries()]


def test_all_classes_have_a_page():
    classes = {x for x in vars(errors).values() if isinstance(x, type)}
    assert {*NAMES} == {x.__name__ for x in classes if x.__module__ == errors.__name__}


@pytest.mark.parametrize("name", NAMES)
def test_a_page(name):
    """No link is left that only a browser follows, and every command that it names works."""
    result = CliRunner().invoke(app, ["explain", name])
    assert result.exit_code == 0
    assert result.output.startswith(f"# {name}\n") and "## What to do" in result.output
    assert not re.findall(r"\]\([^)]*\.md", result.output)
    for further in re.findall(r"`anyjax explain (\w+)`", result.output):
        assert further in NAMES


@pytest.mark.parametrize("name", ["missingrng", "MISSINGRNG", "anyjax.errors.MissingRng"])
def test_names_as_people_type_them(name):
    assert explanations.explanation(name) == explanations.explanation("MissingRng")


def test_an_unknown_name():
    with pytest.raises(WrongValue, match="did you mean DataDependent"):
        explanations.explanation("DataDependant")
    with pytest.raises(WrongValue) as caught:
        explanations.explanation("xyzzy")
    assert caught.value.do == "anyjax explain --list names all"
    result = CliRunner().invoke(app, ["explain", "DataDependant"])
    assert isinstance(result.exception, WrongValue)


@pytest.mark.parametrize("arguments", [["--list"], []])
def test_the_list(arguments):
    result = CliRunner().invoke(app, ["explain", *arguments])
    for name, text in explanations.summaries().items():
        (line,) = [x for x in result.output.splitlines() if f" {name} " in x]
        assert text.replace("`", "") in line


def test_a_terminal_gets_no_markdown(monkeypatch, capsys):
    wide = lambda: rich.console.Console(force_terminal=True, width=120)
    monkeypatch.setattr(_explain, "Console", wide)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    _explain.explain(writing.Explain(name="MissingRng"))
    lines = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out).splitlines()
    assert "What to do" in [x.strip() for x in lines]
    assert not [x for x in lines if x.startswith(("#", "```"))]
    assert max(len(x.rstrip()) for x in lines) <= _explain.WIDEST


@pytest.mark.parametrize("name", ["MissingRng", "--list", "Nothing"])
def test_without_the_packages_of_the_command_line(name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["anyjax", "explain", name])
    monkeypatch.setitem(sys.modules, "anyjax.cli", None)
    monkeypatch.setattr(errors, "missing", lambda error: errors.MissingDependency("typer"))
    if name == "Nothing":
        with pytest.raises(SystemExit):
            __main__.main()
        assert "no error 'Nothing'" in capsys.readouterr().err
    else:
        __main__.main()
        assert "MissingRng" in capsys.readouterr().out


def test_a_copy_without_pages(tmp_path, monkeypatch):
    monkeypatch.setattr(explanations, "PACKAGE", tmp_path / "anyjax")
    with pytest.raises(errors.AnyjaxError, match="the pages of errors are missing"):
        explanations.explanation("MissingRng")
