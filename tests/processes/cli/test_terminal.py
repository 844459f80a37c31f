"""The command line on a terminal of 80 columns, and where only ASCII can be printed."""

import os
import pty
import re
import subprocess
import sys

import pytest

from tests.cli.test_help import VERBS
from tests.processes.cli.test_cli import DEMO, ROOT

pytestmark = pytest.mark.processes

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLORS = re.compile(rb"\x1b\[[0-9;]*(3|4|9|10)[0-7]m")
ASCII = {"PYTHONIOENCODING": "ascii", "LANG": "C", "LC_ALL": "C"}


def on_terminal(*arguments, **environment):
    """(exit code, the bytes that a terminal of 80 columns gets)"""
    main, terminal = pty.openpty()
    run = subprocess.Popen(
        [sys.executable, "-m", "anyjax", *map(str, arguments)],
        cwd=ROOT, stdin=terminal, stdout=terminal, stderr=terminal,
        env=os.environ | {"COLUMNS": "80", "LINES": "24", "TERM": "xterm"} | environment,
    )  # fmt: skip
    os.close(terminal)
    chunks = []
    try:
        while chunk := os.read(main, 65536):
            chunks.append(chunk)
    except OSError:  # the terminal is closed: Linux says so
        pass
    os.close(main)
    return run.wait(timeout=60), b"".join(chunks)


def lines_of(output):
    """The lines, as they stand in the end: progress is written over itself."""
    text = ESCAPES.sub("", output.decode())
    return [x for line in text.replace("\r\n", "\n").split("\n") for x in line.split("\r")]


CALLS = {
    "doctor": ["doctor"],
    "cache": ["cache"],
    "inspect": ["inspect", DEMO],
    "ops": ["ops", "linear"],
    "plan": ["plan", DEMO, "--chips", "v6e-8", "--length", "64"],
}


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("environment", [{}, ASCII, {"NO_COLOR": "1"}], ids=["", "ASCII", "plain"])
@pytest.mark.parametrize("call", CALLS)
def test_80_columns(call, environment):
    code, output = on_terminal(*CALLS[call], **environment)
    lines = lines_of(output)
    assert code == 0, lines
    assert [x for x in lines if len(x) > 80] == []
    assert environment != ASCII or output.isascii()
    assert "NO_COLOR" not in environment or not COLORS.search(output)


def test_progress_is_told_on_a_terminal(tmp_path):
    code, output = on_terminal("export", DEMO, "-o", tmp_path / "m", "--platforms", "cpu", **ASCII)
    assert code == 0, output
    for stage in (b"loading", b"writing jax", b"comparing with the model"):
        assert stage in output
    assert output.isascii()


@pytest.mark.conformance
def test_a_text_on_a_terminal():
    """The prompt comes after the progress, on a line of its own."""
    code, output = on_terminal("generate", DEMO, "-p", "import os", "-n", "4")
    lines = [x.rstrip() for x in lines_of(output)]
    assert code == 0, lines
    assert any("loading" in x for x in lines) and any("compiling" in x for x in lines)
    assert sum(x.startswith("import os") for x in lines) == 1


def piped(*arguments, **environment):
    done = subprocess.run(
        [sys.executable, "-m", "anyjax", *map(str, arguments)],
        cwd=ROOT, capture_output=True, timeout=240, env=os.environ | environment,
    )  # fmt: skip
    assert done.returncode == 0 and b"Traceback" not in done.stderr, done.stderr
    assert done.stdout.isascii() and done.stderr.isascii()
    return done.stdout.decode()


def test_texts_in_ascii():
    out = piped("generate", DEMO, "-p", "dé漢", "-n", "2", **ASCII)
    assert out.startswith(r"d\xe9\u6f22")
    out = piped("generate", DEMO, "-p", "dé漢", "-n", "2", "--json", **ASCII)
    assert r"d\u00e9\u6f22" in out


@pytest.mark.conformance
def test_a_curve_in_ascii(tmp_path):
    options = "--data", "SECURITY.md", "--out", tmp_path / "x", "--length", "32", "--steps", "4"
    assert "step 4: loss" in piped("finetune", DEMO, *options, "--batch", "2", **ASCII)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("verb", VERBS)
def test_help_in_ascii(verb):
    assert "Examples:" in piped(verb, "--help", **ASCII)
