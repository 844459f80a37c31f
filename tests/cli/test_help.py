"""Help pages: groups, whole sentences in 80 columns, examples that are parsed, docs/cli.md."""

import re
import shlex
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from anyjax.cli import app
from anyjax.cli._codes import MEANINGS, ExitCode
from anyjax.cli._help import GROUP_OF, MANY

ROOT = Path(__file__).parents[2]
GROUP = typer.main.get_command(app)
VERBS = GROUP.commands
EXAMPLES = [(name, line) for name, verb in VERBS.items() for line in verb.epilog.splitlines()]
GROUPS = {
    "Run": ["run", "generate"],
    "Look inside": ["inspect", "explore", "verify", "ops"],
    "Convert and write": ["export", "flax", "weights"],
    "Train": ["finetune"],
    "Plan": ["plan"],
    "Housekeeping": ["doctor", "explain", "cache"],
}


@pytest.fixture(autouse=True)
def _columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def page(*arguments):
    result = CliRunner().invoke(app, [*arguments, "--help"])
    assert result.exit_code == 0, result.output
    assert result.output.isascii()
    too_long = [x for x in result.output.splitlines() if len(x) > 80]
    assert not too_long
    return result.output


def test_verbs_are_in_groups_with_whole_sentences():
    text = page()
    for title, verbs in GROUPS.items():
        section = text.split(f"\n{title}:\n")[1].split("\n\n")[0].splitlines()
        assert [line.split()[0] for line in section] == verbs
        for name, line in zip(verbs, section):
            assert line.endswith(VERBS[name].short_help) and line.endswith(".")
    assert {x for verbs in GROUPS.values() for x in verbs} == {*VERBS}
    assert "PyTorch, Hugging Face, TensorFlow and ONNX" in text


def test_exit_codes_are_told():
    text = " ".join(page().split())
    assert {*MEANINGS} == {*ExitCode}
    for code, meaning in MEANINGS.items():
        assert f"{int(code)} {meaning}" in text


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_has_examples(verb):
    text = page(verb)
    examples = text.split("\nExamples:\n")[1].rstrip().splitlines()
    assert 2 <= len(examples) <= 4
    assert [x.strip() for x in examples] == VERBS[verb].epilog.splitlines()
    assert any(f"anyjax {verb}" in x for x in examples)


@pytest.mark.parametrize(("verb", "line"), EXAMPLES)
def test_examples_are_parsed(verb, line, monkeypatch):
    """By the real parser, and their files are there or are written by another example."""
    monkeypatch.chdir(ROOT)
    words = shlex.split(line.rpartition("|")[2])
    assert words[0] == "anyjax"
    command = VERBS[words[1]]
    context = command.make_context(words[1], words[2:])  # raises for what it does not know
    source = context.params.get("source")
    written = {"tuned", "llama/params.safetensors"}
    if source is not None and ":" not in source:
        assert (ROOT / source).exists() or source in written


CHEAP = {"ops", "inspect", "doctor", "explain", "cache", "plan"}
SLOW = {"--imports", "--train", "--tensorflow"}
RUN = [x for x in EXAMPLES if x[0] in CHEAP and not {*SLOW, "--clear"} & {*x[1].split()}]


@pytest.mark.parametrize(("verb", "line"), RUN)
def test_cheap_examples_run(verb, line, monkeypatch):
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(app, shlex.split(line)[1:])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("verb", VERBS)
def test_many_options_are_in_groups(verb):
    options = [x for x in VERBS[verb].params if x.param_type_name == "option"]
    titles = re.findall(r"^(\w[\w ]*):$", page(verb), re.M)
    assert ("Output" in titles) == (len(options) > MANY)
    if len(options) > MANY:
        assert all(x.name in GROUP_OF or f"{verb}.{x.name}" in GROUP_OF for x in options)


def test_groups_name_options_that_exist():
    names = {x.name for verb in VERBS.values() for x in verb.params}
    names |= {f"{k}.{x.name}" for k, verb in VERBS.items() for x in verb.params}
    assert {*GROUP_OF} <= names


def test_the_page_has_every_verb_and_exit_code():
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for name, verb in VERBS.items():
        section = text.split(f"\n### `anyjax {name}`\n")[1].split("\n##")[0]
        for line in verb.epilog.splitlines():
            assert line in section, line
    rows = dict(re.findall(r"^\| (\d+) \| (.*) \|$", text, re.M))
    assert rows == {str(int(code)): meaning for code, meaning in MEANINGS.items()}
