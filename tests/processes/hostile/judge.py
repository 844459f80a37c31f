"""A process that reads mutants, started again where one ends it."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

SECONDS = 120  # for an answer, with the imports that a format needs


class Verdict(NamedTuple):
    """What became of a mutant; see ``Bench.judge``."""

    outcome: str
    detail: str
    seconds: float

    @property
    def right(self) -> bool:
        return self.outcome in ("refused", "same", "other")


class Judge:
    """Asks a process of its own; a context, so that nothing is left running."""

    process: subprocess.Popen | None = None

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends the process."""
        if self.process is not None:
            self.process.stdin.close()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process.stdout.close()
            self.process = None

    def start(self) -> subprocess.Popen:
        """Starts a process, as one that users start: in the repository's folder."""
        command = [sys.executable, "-m", "tests.processes.hostile.worker"]
        root = Path(__file__).parents[3]
        environment = os.environ | {"PYTHONPATH": str(root)}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, cwd=root, env=environment, bufsize=1, **pipes)

    def __call__(self, name: str) -> Verdict:
        """Returns what becomes of the mutant of this name."""
        self.process = self.process or self.start()
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            ready = selector.select(SECONDS)
        if ready and (line := self.process.stdout.readline()):
            return Verdict(*json.loads(line))
        self.process.kill()
        code = self.process.wait()
        self.stop()
        return Verdict("crash" if ready else "hang", f"the process ended with {code}", 0.0)
