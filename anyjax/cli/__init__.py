"""The command line: one module per verb, each imported when it is called."""

from __future__ import annotations

from typing import Annotated

import typer

from anyjax.cli import _reports, _stages, reading, writing
from anyjax.cli.options import ABOUT, app

__all__ = ["_stages", "app", "main", "reading", "writing"]  # importing them starts and registers


def _version(show: bool) -> None:
    if show:
        from anyjax import __version__

        print(f"anyjax {__version__}")
        raise typer.Exit


@app.callback(help=ABOUT)
def _common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="print it and end"),
    ] = False,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="compile anew, and keep nothing of it")
    ] = False,
) -> None:
    """Takes the options of all verbs; ``_cache.use`` has read ``--no-cache`` by then."""


def main() -> None:
    """Runs the command line: errors in four lines and exit code 1, Ctrl-C quietly and 130."""
    from anyjax.calls.host_memory import reuse_memory
    from anyjax.cli import _cache

    _cache.use()
    reuse_memory()
    _reports.end_with(app)
