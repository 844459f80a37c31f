"""Exit codes of the command line, for all verbs."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes; ``MEANINGS`` has a line for each."""

    OK = 0
    FAILED = 1
    USAGE = 2
    DISAGREE = 3
    MISSING_OPS = 4
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.OK: "success",
    ExitCode.FAILED: "an error: a mistake in the input, a missing package, a model that is refused",
    ExitCode.USAGE: "the line cannot be read, or ops finds no operator of that name",
    ExitCode.DISAGREE: "JAX and the source framework, or a file and its model, disagree",
    ExitCode.MISSING_OPS: "inspect found operators without a lowering",
    ExitCode.INTERRUPTED: "Ctrl-C",
}
