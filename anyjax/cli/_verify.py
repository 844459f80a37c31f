"""``anyjax verify``: a checkpoint in JAX beside its own framework, module by module."""

from __future__ import annotations

import sys
from typing import Any

import typer

from anyjax.cli import _generate as text
from anyjax.cli import _shown, _source
from anyjax.cli._codes import ExitCode
from anyjax.cli.options import Verify


def verify(options: Verify) -> None:
    """Runs ``anyjax verify``."""
    with _shown.progress("reading the checkpoint") as bar:
        resolved = _source.resolve(
            options.source, options.adapter, allow_pickle=options.allow_pickle
        )
        prompt = text.prompt_of(options.prompt)
        bar.update("loading")
        import anyjax
        from anyjax.hf.loading import inputs

        model = _source.model_of(
            resolved, dtype=options.dtype, task=options.task, allow_pickle=options.allow_pickle
        )
        module: Any = model.source.module
        ids = text.encode(text.tokenizer_of(resolved), prompt) if prompt else None
        original = model.to_torch() if resolved.adapter else None  # with the adapter in it
        example: dict[str, Any] = inputs.example(module, ids)
    with _shown.steps("running both sides") as step:
        report = anyjax.verify(
            model,
            reference=original,
            gradients=options.gradients,
            operators=options.operators,
            progress=step,
            **example,
        )
    if options.html:
        report.to_html(options.html)
        typer.echo(f"page: {options.html}", err=True)  # standard output may be JSON
    if options.json:
        _shown.as_json(report.as_dict())
    else:
        _shown.console().print(str(report), markup=False)
    if options.reproduce and not report.ok:
        path = report.reproduce(options.reproduce)
        typer.echo(f"{path}: python {options.reproduce}/reproduce.py", err=True)
    if not report.ok:
        sys.exit(ExitCode.DISAGREE)
