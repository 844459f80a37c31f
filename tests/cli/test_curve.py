"""The curve of a run."""

import json

import pytest

from anyjax.cli import _curve


@pytest.fixture
def folder(tmp_path):
    lines = [{"step": i, "loss": 4 / i} for i in range(1, 9)] + [{"step": 8, "eval_loss": 1.0}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    return tmp_path


def test_read_and_drawn(folder):
    steps, values = _curve.losses(folder)
    assert steps == [*range(1, 9)] and values[0] == 4
    lines = _curve.drawn(values, width=8, height=3).splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("4.000") and lines[0].rstrip().endswith("█")
    assert lines[-1] == "0.500"
    assert _curve.drawn([2.0]).splitlines()[-1] == "2.000"


def test_picture(folder):
    pytest.importorskip("matplotlib")
    assert _curve.picture(folder).read_bytes().startswith(b"\x89PNG")
