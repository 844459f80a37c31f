"""The harness of transformers' types: two types for real, and workers that die or take too long."""

import os

import pytest

pytest.importorskip("transformers")

from proof import records, transformers_types
from proof.transformers_types import CHECKS, COLUMNS, Worker, pending, save

pytestmark = pytest.mark.processes


@pytest.fixture
def settings(monkeypatch):
    """The harness sets variables for its processes; a test puts them back."""
    for name, value in transformers_types.SETTINGS.items():
        monkeypatch.setenv(name, os.environ.get(name, value))


def test_two_types(tmp_path, settings):
    path = tmp_path / "types.csv"
    options = ["--out", str(path), "--types", "gpt2,vit", "--checks", "forward,jit,generate"]
    transformers_types.main(options)
    rows = {row["type"]: row for row in records.read(path) if row["date"]}
    assert {*rows} == {"gpt2", "vit"}
    for row in rows.values():
        assert row["forward"] == row["jit"] == "ok" and row["gradient"] == ""
        assert f"--types {row['type']} --again" in row["command"] and "torch " in row["versions"]
    assert rows["gpt2"]["generate"] == "ok"
    assert rows["vit"]["generate"] == "n/a: no text is generated"
    assert pending(path, ["gpt2"], CHECKS)["gpt2"] == [*CHECKS[1:2], *CHECKS[3:6], *CHECKS[7:]]
    assert pending(path, ["gpt2"], ["jit"]) == {}


def test_a_check_that_takes_too_long(settings):
    worker = Worker(seconds=0.01)
    try:
        cells = worker.run("gpt2", ["gradient", "forward"])
    finally:
        worker.stop()
    why = "n/a: no small model in torch: longer than 0 s"
    assert all(cells[x].startswith(why) for x in ("gradient", "forward"))


def test_rows_keep_the_checks_of_earlier_runs(tmp_path):
    path = tmp_path / "types.csv"
    save(path, {"type": "b", "forward": "ok"}, {"type": "a"})
    save(path, {"type": "b", "jit": "no: why"})
    first, second = records.read(path)
    assert first == dict.fromkeys(COLUMNS, "") | {"type": "a"}
    assert second == dict.fromkeys(COLUMNS, "") | {"type": "b", "forward": "ok", "jit": "no: why"}
