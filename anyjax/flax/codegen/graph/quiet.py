"""The output of torch.export about a module that it refuses, which the error repeats: left out."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from typing import Any, TextIO

LOGGERS = ("torch.fx.experimental.symbolic_shapes", "torch.export._trace")
REPEATED = ("Unable to find user code", "For more information about this error")
GRAPH = "def forward(self"  # of the program so far, which goes to stderr past the log


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hides programs that torch.export prints, and lines of its log that an error repeats."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    for logger in loggers:
        logger.addFilter(_is_no_repetition)
    try:
        with contextlib.redirect_stderr(_WithoutPrograms(sys.stderr)):
            yield
    finally:
        for logger in loggers:
            logger.removeFilter(_is_no_repetition)


def _is_no_repetition(record: logging.LogRecord) -> bool:
    return not str(record.msg).lstrip().startswith(REPEATED)


class _WithoutPrograms:
    """A stream that leaves out printed programs."""

    def __init__(self, stream: TextIO):
        self.stream, self.after_program = stream, False

    def write(self, text: str) -> int:
        """Writes text, unless it is a program or the line's end after one."""
        end, self.after_program = self.after_program and text == "\n", GRAPH in text
        return len(text) if end or self.after_program else self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
