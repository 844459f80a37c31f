import struct

import numpy as np
import pytest

from anyjax.errors import NotWritten
from anyjax.train.run.logs import Log, open_log, scalars, tensorboard

pytestmark = pytest.mark.sample(every=2)


def test_lines_after_the_step_that_a_run_goes_on_from_are_removed(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 2, "eval_loss": 1}\n{"step": 3}\n{"st')
    with open_log(path, 2) as file:
        file.write("new\n")
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n{"step": 2, "eval_loss": 1}\nnew\n'


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(NotWritten, match=r"file/metrics.jsonl cannot be written"):
        open_log(tmp_path / "file" / "metrics.jsonl", 0)


def test_sinks_get_every_line(tmp_path):
    seen = []
    with Log(tmp_path, [lambda step, metrics: seen.append((step, metrics))], 0, 2, False) as log:
        log.write(1, {"loss": 0.5})
        log.write(1, {"eval_loss": 0.25})
    assert seen == [(1, {"loss": 0.5}), (1, {"eval_loss": 0.25})]
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2


def test_the_bar_shows_steps(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with Log(None, [], 3, 5, True) as log:
        log.write(4, {"loss": 0.5}, compiled=1)
    shown = capsys.readouterr().err
    assert "4/5" in shown and "loss=0.5" in shown and "compiled=1" in shown


def test_scalars_are_numbers_alone():
    metrics = {"loss": np.float32(0.1), "rows": np.ones(3), "finite": np.bool_(True)}
    assert scalars(metrics, "eval_") == {"eval_loss": float(np.float32(0.1))}


def test_tensorboard_reads_what_is_written(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.compat.proto.event_pb2 import Event

    sink = tensorboard(tmp_path)
    sink(3, {"loss": 0.5})
    (file,) = tmp_path.iterdir()
    data, events = file.read_bytes(), []
    while data:  # a record: its length, a checksum of that, the event, a checksum
        size = struct.unpack("<Q", data[:8])[0]
        events.append(Event.FromString(data[12 : 12 + size]))
        data = data[16 + size :]
    assert [(e.step, v.tag, v.simple_value) for e in events for v in e.summary.value] == [
        (3, "loss", 0.5)
    ]


def test_tokens_are_counted_by_the_second(monkeypatch, capsys):
    monkeypatch.setattr("time.perf_counter", iter(np.arange(100) / 4).__next__)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    seen = []
    with Log(None, [lambda step, metrics: seen.append(metrics)], 0, 2, True) as log:
        log.write(1, {"loss": 0.5, "tokens": 64})
        log.write(1, {"eval_loss": 0.5})
        log.write(2, {"loss": 0.5, "tokens": 32})
    assert [x.get("tokens_per_second") for x in seen] == [256, None, 128]
    assert "tokens_per_second=" in capsys.readouterr().err


@pytest.mark.parametrize("bar", [True, False])
def test_a_line_where_nobody_looks(capsys, bar):
    with Log(None, [], 0, 2, bar) as log:
        log.say("compiling")
    assert capsys.readouterr() == ("", "compiling\n" if bar else "")
