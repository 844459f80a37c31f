"""``anyjax explore``: a page about a model, whichever framework it is from."""

from __future__ import annotations

import dataclasses
import webbrowser
from pathlib import Path

import typer

from anyjax.cli import _shown, sources
from anyjax.cli._plan import mesh_of
from anyjax.cli.reading import Explore
from anyjax.cli.sources import Request

PAGE = "explore.html"


def explore(options: Explore) -> None:
    """Runs ``anyjax explore``."""
    mesh, source = mesh_of(options.mesh), sources.find(options)
    with _shown.progress("loading") as bar:
        example = {"rows": options.batch, "cache": False, "report": bar.update}
        opened = source.opened(Request.of(options, **example))
        import anyjax
    with _shown.steps("tracing") as step:
        report = anyjax.explore(
            opened.model,
            *opened.args,
            mesh=mesh,
            plan=options.plan,
            values=options.weights,
            progress=step,
            **opened.kwargs,
        )
    report = dataclasses.replace(report, origin=options.source)
    if options.json:
        _shown.as_json(report.as_dict())
    if options.json and options.output is None and not options.open:
        return
    file = Path(options.output or PAGE)
    report.to_html(file)
    typer.echo(f"page: {file}", err=True)  # standard output may be JSON
    if options.open:
        webbrowser.open(file.absolute().as_uri())
