"""``anyjax weights``: a JAX checkpoint as one for PyTorch."""

from __future__ import annotations

import inspect
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from anyjax.cli import _import, _shown
from anyjax.cli.sources.checkpoint import resolve
from anyjax.cli.writing import Weights
from anyjax.errors import WrongArguments
from anyjax.typing import PyTree

if TYPE_CHECKING:
    import torch

    from anyjax.flax.matching.report import Report
    from anyjax.hf.loading.find.checkpoint import Checkpoint


def weights(options: Weights) -> None:
    """Runs ``anyjax weights``."""
    console = Console(highlight=False, markup=False, stderr=True)
    target, imported = Path(options.out), _import.is_path(options.model)
    match: dict[str, Any] = dict(_decision(x) for x in options.match or [])
    checkpoint = None if imported else resolve(options.model, need_weights=False).checkpoint
    with _shown.progress("reading the weights"):
        from anyjax.flax import read_params, to_torch

        params = read_params(options.source, options.key)
    with _shown.progress("building the models"):
        module = _torch_module(options.model, checkpoint, options.task)
        jax_side = _jax_side(options.jax, params)
        inputs = [_import.draw(x).numpy() for x in options.input or []]
    with _shown.progress("matching layers, and running both models" if inputs else "matching"):
        example = tuple(inputs) or None
        call = {"torch_module": module, "example": example, "match": match, **jax_side}
        _, report = to_torch(ignore=options.ignore or (), **call)
    with _shown.progress("writing"):
        _write(module, target, checkpoint.folder if checkpoint else None)
    if options.json:
        return _shown.as_json(
            {"matches": [vars(x) for x in report], "left_out": dict(report.left_out)}
            | {"checked": report.checked, "written": str(target)}
        )
    _show(report)
    if not inputs:
        console.print("the models were not run: --jax MODULE:CLASS --input SHAPE does that")
    return console.print(f"{target}: {len(report.matches)} arrays of {type(module).__name__}")


def _show(report: Report) -> None:
    """Prints the matches as a table, and below it what was left out and how it was checked."""
    rows = [(x.flax, x.torch, x.layout, x.how, x.cast) for x in report]
    header = ["flax", "torch", "layout", "decided by", "cast"]
    _, *lines = str(replace(report, matches=())).splitlines()
    console = _shown.console()
    console.print(_shown.table(header, rows))
    console.print(*lines, sep="\n")


def _decision(text: str) -> tuple[str, str | None]:
    path, separator, name = text.partition("=")
    if not separator:
        raise WrongArguments(
            f"--match {text}",
            why="a decision names both sides",
            do="write --match flax/path=torch.name, or flax/path= to leave it out",
        )
    return path, name or None


def _torch_module(name: str, checkpoint: Checkpoint | None, task: str | None) -> torch.nn.Module:
    if checkpoint is None:
        return _import.module_of(name)
    from anyjax.hf.loading.decide import decide

    return decide(checkpoint, task).skeleton("cpu")


def _jax_side(source: str | None, params: PyTree) -> dict[str, Any]:
    """Returns the JAX model, or how it is called, as arguments of ``to_torch``."""
    if source is None:
        return {"jax_model": params}
    import flax.linen as nn
    from flax import nnx

    member: Any = _import.member(source)
    if inspect.isclass(member) and issubclass(member, nnx.Module):
        parameters: Any = inspect.signature(member.__init__).parameters
        arguments = {"rngs": nnx.Rngs(0)} if "rngs" in parameters else {}
        member = member(**arguments)
    elif inspect.isclass(member) and issubclass(member, nn.Module):
        member = member()
    if isinstance(member, nnx.Module | nn.Module):
        return {"jax_model": member, "variables": params}
    if callable(member):
        return {"jax_model": params, "apply": member}
    raise WrongArguments(
        f"{source} is a {type(member).__name__}",
        where="--jax",
        why="a JAX model is a module of nnx or Linen, or a function of params and inputs",
        do="name one of these",
    )


def _write(module: torch.nn.Module, target: Path, origin: Path | None) -> None:
    if origin is not None and target.suffix != ".safetensors":
        from anyjax.hf._save_pretrained import save_module

        return save_module(lambda: module, target, origin, "5GB")
    from safetensors.torch import save_model

    file = target if target.suffix == ".safetensors" else target / "model.safetensors"
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".part")
    try:
        save_model(module, str(unfinished))
        os.replace(unfinished, file)
    finally:
        unfinished.unlink(missing_ok=True)
    return None
