"""Exit codes of the command line, for all verbs."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes, each with its ``meaning``."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> ExitCode:
        """Makes a member of a number and its meaning."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    OK = 0, "success"
    FAILED = 1, "an error: a mistake in the input, a missing package, a model that cannot be served"
    USAGE = 2, "the command line cannot be read, or ops finds no operator of that name"
    DISAGREE = 3, "JAX and the source framework, or a file and its model, disagree"
    MISSING_OPS = 4, "inspect found operators without a lowering"
    INTERRUPTED = 130, "Ctrl-C"
