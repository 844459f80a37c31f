"""Logs of a run: ``metrics.jsonl``, a progress bar, and other sinks of metrics."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from anyjax.errors import MissingDependency
from anyjax.multiprocess import leads
from anyjax.train.run.disk import writing

Sink = Callable[[int, dict[str, float]], None]


class Log:
    """A writer of each step's metrics; ``done`` is the step that a run resumes from.

    Lines of later steps, which an interrupted run wrote, are removed: they are written again. Only
    the first process writes.
    """

    def __init__(self, folder: Any, sinks: Iterable[Sink], done: int, total: int | None, bar: bool):
        from tqdm.auto import tqdm

        if not leads():
            folder, sinks, bar = None, (), False
        self.sinks, self.done, self.last = list(sinks), done, time.perf_counter()
        self.file = (
            None if folder is None else open_log(Path(folder).expanduser() / "metrics.jsonl", done)
        )
        self.shows_progress = bar
        # disable=None: no bar unless stderr is a terminal
        self.bar = tqdm(total=total, initial=done, unit="step", disable=None if bar else True)

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_) -> None:
        if self.file is not None:
            self.file.close()
        self.bar.close()

    def say(self, text: str) -> None:
        """Writes a line to stderr, unless progress is switched off."""
        if self.shows_progress:
            self.bar.write(text, file=sys.stderr)

    def write(self, step: int, metrics: dict[str, float], **shown: Any) -> None:
        """Writes one line; ``shown`` is for the bar alone.

        Where metrics count ``tokens``, ``tokens_per_second`` since the previous line is added.
        """
        previous, self.last = self.last, time.perf_counter()
        seconds = self.last - previous
        if "tokens" in metrics:
            metrics = {**metrics, "tokens_per_second": metrics["tokens"] / max(seconds, 1e-9)}
        if self.file is not None:
            with writing(Path(self.file.name)):
                self.file.write(json.dumps({"step": step, **metrics}) + "\n")
                self.file.flush()
        for sink in self.sinks:
            sink(step, metrics)
        if step > self.done:
            self.bar.update(step - self.done)
            self.done = step
        if not self.bar.disable:
            rate = [(k, v) for k, v in metrics.items() if k == "tokens_per_second"]
            few = {k: f"{v:.4g}" for k, v in [*metrics.items()][:2] + rate}
            self.bar.set_postfix({**few, **shown}, refresh=False)


def open_log(path: Path, done: int) -> Any:
    """Opens the file to append to, without the lines after step ``done``.

    Raises:
      NotWritten: it cannot be open_log.
    """
    with writing(path):
        lines = []
        if path.exists():
            lines = [x for x in path.read_text(encoding="utf-8").splitlines() if _is_upto(x, done)]
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        os.replace(fresh, path)
        return path.open("a", encoding="utf-8")


def _is_upto(line: str, done: int) -> bool:
    try:
        return json.loads(line)["step"] <= done
    except ValueError:  # the last line, if the run was killed while it wrote it
        return False


def scalars(metrics: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Returns the numbers among metrics."""
    numbers = {k: v for k, v in metrics.items() if np.ndim(v) == 0 and k != "finite"}
    return {prefix + k: np.asarray(v).item() for k, v in numbers.items()}


def tensorboard(folder: str | os.PathLike[str]) -> Sink:
    """Makes a sink for ``fit(log=[tensorboard(folder)])`` that writes TensorBoard's event files.

    Args:
      folder: where the files go, for ``tensorboard --logdir``.

    Raises:
      MissingDependency: tensorboard is not installed.

    Example:
      >>> import tempfile, os
      >>> folder = tempfile.mkdtemp()
      >>> anyjax.train.tensorboard(folder)(1, {"loss": 0.5})
      >>> len(os.listdir(folder))
      1
    """
    try:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter
    except ImportError as error:
        raise MissingDependency(
            "tensorboard is not installed",
            why="its event files are written with it",
            do="pip install tensorboard",
        ) from error
    # EventFileWriter would import TensorFlow if it is installed
    path = Path(folder).expanduser() / f"events.out.tfevents.{time.time():.6f}.{os.getpid()}"

    def write(**content: Any) -> None:
        event = event_pb2.Event(wall_time=time.time(), **content)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            RecordWriter(file).write(event.SerializeToString())

    def sink(step: int, metrics: dict[str, float]) -> None:
        values = [summary_pb2.Summary.Value(tag=k, simple_value=v) for k, v in metrics.items()]
        write(step=step, summary=summary_pb2.Summary(value=values))

    write(file_version="brain.Event:2")
    return sink
