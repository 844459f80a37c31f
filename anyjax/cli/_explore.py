"""``anyjax explore``: a page about a model, whichever framework it is from."""

from __future__ import annotations

import dataclasses
import inspect
import os
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from anyjax.cli import _inspect_tensorflow, _shown, _source
from anyjax.cli._plan import mesh_of
from anyjax.cli.options import Explore
from anyjax.errors import WrongValue

if TYPE_CHECKING:
    from anyjax.model import Model

    Call = tuple[Model, tuple[Any, ...], dict[str, Any]]

PAGE = "explore.html"


def explore(options: Explore) -> None:
    """Runs ``anyjax explore``."""
    mesh = mesh_of(options.mesh)
    with _shown.progress("loading"):
        import anyjax

        model, args, kwargs = _call(options)
    with _shown.steps("tracing") as step:
        report = anyjax.explore(
            model,
            *args,
            mesh=mesh,
            plan=options.plan,
            values=options.weights,
            progress=step,
            **kwargs,
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


def _call(options: Explore) -> Call:
    """Loads a model; returns it with an example of its call."""
    from anyjax.frontends import frontend_of

    is_onnx = frontend_of(options.source) == "onnx"
    is_saved = _source.is_saved(options.source)
    if is_onnx or is_saved or _inspect_tensorflow.is_tensorflow(options.source):
        if options.adapter or options.dtype or options.task:
            raise WrongValue(
                "--adapter, --dtype or --task",
                where=options.source,
                why="they are those of checkpoints of Hugging Face",
                do="leave them out",
            )
        if is_onnx:
            return _onnx(options)
        return _saved(options) if is_saved else _tensorflow(options)
    return _checkpoint(options)


def _checkpoint(options: Explore) -> Call:
    """Loads a Hugging Face checkpoint, or its config alone."""
    from anyjax.hf.estimate_call import abstract_model, checked_length
    from anyjax.hf.loading import inputs

    if options.weights:
        resolved = _source.resolve(
            options.source, options.adapter, allow_pickle=options.allow_pickle
        )
        model = _source.model_of(
            resolved, dtype=options.dtype, task=options.task, allow_pickle=options.allow_pickle
        )
    elif options.adapter:
        raise WrongValue(
            "--adapter with --no-weights",
            where="anyjax explore",
            why="an adapter is put on weights",
            do="leave one of them out",
        )
    else:
        model = abstract_model(options.source, options.dtype, options.task)
    module: Any = model.source.module
    checked_length(model, options.length)
    example: dict[str, Any] = inputs.example(module, length=options.length)
    rows = {name: np.repeat(x, options.batch, 0) for name, x in example.items()}
    has_cache = "use_cache" in inspect.signature(module.forward).parameters
    return model, (), rows | ({"use_cache": False} if has_cache else {})


def _onnx(options: Explore) -> Call:
    """Reads an ONNX file."""
    import anyjax
    from anyjax.cli._run_onnx import examples

    model = anyjax.from_onnx(options.source)
    return model, (), examples(model, options.batch)


def _tensorflow(options: Explore) -> Call:
    """Loads a SavedModel or a Keras file."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import anyjax
    from anyjax.cli._run_tensorflow import examples
    from anyjax.tensorflow import savedmodel

    loaded = savedmodel.load(options.source)
    function = savedmodel.choose(loaded, None) if hasattr(loaded, "signatures") else loaded
    args, kwargs = examples(savedmodel.call_of(function), options.batch)
    return anyjax.from_tensorflow(function, *args, **kwargs), args, kwargs


def _saved(options: Explore) -> Call:
    """Loads what ``model.save`` wrote; its call is one that it was saved with."""
    import anyjax

    return anyjax.load(options.source), (), {}
