"""The command of each suite names tests that are there, and a page shows its results."""

from pathlib import Path

from proof import suites, tables
from proof.records import ROOT
from tests.conformance.record import TESTS


def test_commands():
    files = [x for name in suites.SUITES for x in suites.command(name) if x.endswith(".py")]
    assert files and all((ROOT / file).exists() for file in files)
    assert {*suites.SUITES} == {*tables.SUITES}
    recorded = {key.partition("::")[0] for key in TESTS}
    assert {Path(file).name for file in files} <= recorded


def test_options_of_pytest(monkeypatch):
    commands = []
    monkeypatch.setattr(suites.subprocess, "run", lambda x, **_: commands.append(x) or Failed)
    assert suites.main(["--only", "onnx", "--", "-n", "0"]) == 1
    assert commands == [suites.command("onnx", ["-n", "0"])]


class Failed:
    returncode = 1
