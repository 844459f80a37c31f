"""Adapters (LoRA and the like) on top of a checkpoint, through PEFT."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from tojax.errors import BadCheckpoint, MissingDependency
from tojax.hf.checkpoint import download

if TYPE_CHECKING:
    import torch

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def is_adapter(source: str | os.PathLike) -> bool:
    """Whether a folder holds an adapter and no model."""
    folder = Path(source).expanduser()
    return (folder / CONFIG).exists() and not (folder / "config.json").exists()


def base_of(adapter: str | os.PathLike) -> str:
    """The checkpoint that an adapter was trained on, as its config names it: a hub id, or a folder,
    also where its path was written down in another working directory.

    Raises:
      BadCheckpoint: it names none, or a folder that is not there.
    """
    file = Path(adapter).expanduser() / CONFIG
    try:
        base = json.loads(file.read_text()).get("base_model_name_or_path")
    except ValueError as error:
        raise BadCheckpoint(
            f"{CONFIG} is no JSON", where=str(file), why=str(error), do="restore the file"
        ) from None
    if not base:
        raise BadCheckpoint(
            f"{CONFIG} names no base_model_name_or_path",
            where=str(file),
            why="an adapter holds the difference to a model's weights only",
            do="name the model: tojax.from_pretrained(model, adapter=folder)",
        )
    return _found(base, file)


def _found(base: str, file: Path) -> str:
    """The folder of that name here, or above the adapter's folder; else the name, of a hub id."""
    if (here := Path(base).expanduser()).is_dir():
        return str(here)
    for place in file.resolve().parents:
        if (place / base / "config.json").is_file():
            return str(place / base)
    if base.startswith((".", "/", "~")) or base.count("/") > 1:
        raise BadCheckpoint(
            f"the model that the adapter {file.parent.name} was trained on is not here",
            where=str(file),
            why=f"base_model_name_or_path is {base}, and there is no such folder",
            do="name the model: tojax.from_pretrained(model, adapter=folder), "
            "or tojax generate MODEL --adapter FOLDER",
        )
    return base


def put_on(module: torch.nn.Module, adapter: str | os.PathLike) -> torch.nn.Module:
    """The module with the adapter's layers in it; only their weights require a gradient.

    Raises:
      MissingDependency: PEFT is not installed.
      BadCheckpoint: no adapter there, pickled, or its weights do not fit the module.
    """
    try:
        import peft
    except ImportError:
        raise MissingDependency(
            "adapters need the package peft",
            why="it knows how they are put into a model",
            do="pip install peft",
        ) from None
    folder = Path(adapter).expanduser()
    folder = folder if folder.is_dir() else download(str(adapter))
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).exists():
            raise BadCheckpoint(
                f"{folder.name} is no adapter: it has no {name}",
                where=str(folder.absolute()),
                why="an adapter is a folder that PEFT's save_pretrained wrote, not pickled",
                do=f"give the folder that holds {CONFIG} and {WEIGHTS}",
            )
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            out = peft.PeftModel.from_pretrained(module, folder, is_trainable=True)
        except (RuntimeError, ValueError, TypeError) as error:
            raise _unfit(folder, str(error)) from error
    if missing := [str(w.message) for w in said if "missing adapter keys" in str(w.message)]:
        raise _unfit(folder, missing[0])
    # PEFT's wrapper only passes on, unless the adapter is a prompt of its own.
    inside = out if out.active_peft_config.is_prompt_learning else out.get_base_model()
    return inside.eval()


def _unfit(folder: Path, why: str) -> BadCheckpoint:
    return BadCheckpoint(
        f"the adapter {folder.name} does not fit the model",
        where=str(folder),
        why=" ".join(why.split())[:300],
        do=f"put it on the model that its {CONFIG} names",
    )
