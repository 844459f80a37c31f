"""Checkpoints as Models, through transformers' own classes and its own loader."""

from __future__ import annotations

import contextlib
import difflib
import os
from collections.abc import Iterator
from typing import Any

import torch
import transformers

from tojax.errors import BadCheckpoint, Unsupported
from tojax.hf.checkpoint import Checkpoint, find
from tojax.model import Model
from tojax.torch import from_torch


def from_pretrained(
    source: str | os.PathLike,
    *,
    dtype: Any = None,
    task: str | None = None,
    allow_pickle: bool = False,
) -> Model:
    """A Hugging Face checkpoint as a Model, in evaluation mode.

    Args:
      source: a folder with config.json and safetensors files, or a hub id (owner/name), which is
      downloaded.
      dtype: dtype of the floating-point weights, such as "bfloat16"; the checkpoint's own by
      default.
      task: which head to use, as in transformers' ``AutoModelFor...`` ("CausalLM",
        "SequenceClassification"); the class that the checkpoint names by default.
      allow_pickle: also load pickled weights, which can run any code that their author put in.

    Raises:
      BadCheckpoint: the folder is no checkpoint, or weights are missing, extra, misshaped,
      truncated or pickled.
      HubUnreachable: the id is not here and the hub does not answer.
      Unsupported: the model's code is not part of transformers.

    Example:
      >>> import numpy as np
      >>> model = tojax.from_pretrained("examples/tiny-llama")
      >>> model(np.array([[1, 2, 3]])).logits.shape[:2]
      (1, 3)
    """
    found = find(source, allow_pickle=allow_pickle)
    return from_torch(load_torch(found, dtype=dtype, task=task, allow_pickle=allow_pickle))


def load_torch(
    found: Checkpoint, *, dtype: Any = None, task: str | None = None, allow_pickle: bool = False
) -> torch.nn.Module:
    """The torch module with its weights, in evaluation mode; every weight in place or
    BadCheckpoint.
    """
    cls = model_class(found, task)
    with quiet():
        try:
            module, told = cls.from_pretrained(
                found.folder,
                dtype=getattr(torch, str(dtype).removeprefix("torch."))
                if dtype is not None
                else "auto",
                output_loading_info=True,
                use_safetensors=None if allow_pickle else True,
                local_files_only=True,
                ignore_mismatched_sizes=True,  # _check names them all
            )
        except (RuntimeError, ValueError, OSError) as error:
            raise BadCheckpoint(
                f"transformers cannot load {found.folder.name}",
                where=str(found.folder),
                why=" ".join(str(error).split())[:300],
                do="compare config.json with the weights: tojax inspect FOLDER",
            ) from error
    _check(found, told, new_head=task is not None)
    return module.eval()


def _check(found: Checkpoint, told: dict[str, Any], new_head: bool) -> None:
    missing = [] if new_head else sorted(told.get("missing_keys", ()))
    misshaped = sorted(
        str(x[0]) if isinstance(x, tuple) else str(x) for x in told.get("mismatched_keys", ())
    )
    extra = sorted(told.get("unexpected_keys", ()))
    problems = {"missing": missing, "misshaped": misshaped, "unexpected": extra}
    said = [
        f"{len(v)} {k} ({', '.join(v[:4])}{', ...' if len(v) > 4 else ''})"
        for k, v in problems.items()
        if v
    ]
    if missing or misshaped or (extra and not new_head):
        raise BadCheckpoint(
            f"the weights do not fit {found.config['model_type']}: {'; '.join(said)}",
            where=str(found.folder),
            why="config.json and the weight files belong to different models, or one is incomplete",
            do="compare them with `tojax inspect FOLDER`; name another head with task=...",
        )


def model_class(found: Checkpoint, task: str | None = None) -> Any:
    """The transformers class that a checkpoint is for."""
    if files := list(found.config.get("auto_map", {}).values()):
        raise Unsupported(
            f"{found.folder.name} brings model code of its own ({', '.join(files)})",
            where=str(found.folder / "config.json"),
            why="running code that was downloaded with the weights is refused",
            do="load it with transformers (trust_remote_code=True), then tojax.from_torch(module)",
        )
    if task is not None:
        cls = getattr(transformers, f"AutoModelFor{task}", None)
        if cls is None:
            known = [
                n.removeprefix("AutoModelFor")
                for n in dir(transformers)
                if n.startswith("AutoModelFor")
            ]
            near = difflib.get_close_matches(task, known, 3, 0.3)
            raise Unsupported(
                f"no head for the task {task!r}",
                where=f"transformers {transformers.__version__}",
                why=f"there is no AutoModelFor{task}",
                do=f"use one of its {len(known)} tasks, such as {', '.join(near or known[:3])}",
            )
        return cls
    for name in found.config.get("architectures") or ():
        if cls := getattr(transformers, name, None):
            return cls
    return transformers.AutoModel


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """transformers' own warnings and bars off: what matters of them is raised as an error."""
    logging = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
