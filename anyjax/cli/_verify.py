"""``anyjax verify``: a checkpoint in JAX beside its own framework, module by module."""

from __future__ import annotations

import sys

import typer

from anyjax.cli import _shown, _tokenizer, sources
from anyjax.cli._codes import ExitCode
from anyjax.cli.reading import Verify
from anyjax.cli.sources import Request


def verify(options: Verify) -> None:
    """Runs ``anyjax verify``."""
    source, prompt = sources.find(options, ("hf",)), _tokenizer.prompt_of(options.prompt)
    with _shown.progress("reading the checkpoint") as bar:
        opened = source.opened(Request.of(options, prompt=prompt, report=bar.update))
        import anyjax

        # with the adapter in it
        original = opened.model.to_torch() if opened.adapter else None
    with _shown.steps("running both sides") as step:
        report = anyjax.verify(
            opened.model,
            reference=original,
            gradients=options.gradients,
            operators=options.operators,
            progress=step,
            **opened.kwargs,
        )
    if options.html:
        report.to_html(options.html)
        typer.echo(f"page: {options.html}", err=True)  # standard output may be JSON
    if options.json:
        _shown.as_json(report.as_dict())
    else:
        _shown.console().print(str(report))
    if options.reproduce and not report.ok:
        path = report.reproduce(options.reproduce)
        typer.echo(f"{path}: python {options.reproduce}/reproduce.py", err=True)
    if not report.ok:
        sys.exit(ExitCode.DISAGREE)
