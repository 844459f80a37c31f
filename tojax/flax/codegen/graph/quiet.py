"""What torch.export prints of a module that it refuses, and the error says as well: left out."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from typing import Any

LOGGERS = ("torch.fx.experimental.symbolic_shapes", "torch.export._trace")
REPEATED = ("Unable to find user code", "For more information about this error")
GRAPH = "def forward(self"  # of the program so far, which goes to stderr past the log


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """While this is open, torch.export prints no program and no line of its log that an error
    repeats; all else is printed as it comes.
    """
    loggers = [logging.getLogger(name) for name in LOGGERS]
    for logger in loggers:
        logger.addFilter(_new)
    try:
        with contextlib.redirect_stderr(_Rest(sys.stderr)):
            yield
    finally:
        for logger in loggers:
            logger.removeFilter(_new)


def _new(record: logging.LogRecord) -> bool:
    return not str(record.msg).lstrip().startswith(REPEATED)


class _Rest:
    """A stream without printed programs."""

    def __init__(self, stream: Any):
        self.stream, self.after = stream, False

    def write(self, text: str) -> int:
        """Writes what is no program, nor the line's end after one."""
        end, self.after = self.after and text == "\n", GRAPH in text
        return len(text) if end or self.after else self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
