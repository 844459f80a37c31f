"""``anyjax inspect``: the contents of a checkpoint, a file or a folder."""

from __future__ import annotations

import sys

from anyjax.cli import _shown, sources
from anyjax.cli._codes import ExitCode
from anyjax.cli.reading import Inspect
from anyjax.cli.sources import Request


def inspect(options: Inspect) -> None:
    """Runs ``anyjax inspect``."""
    contents = sources.find(options).contents(Request.of(options))
    if options.json:
        _shown.as_json(contents.about)
    else:
        _shown.console().print(*contents.body, sep="\n")
    if contents.missing:
        sys.exit(ExitCode.MISSING_OPS)
