"""Which transformers class a checkpoint is for, and its config."""

from __future__ import annotations

import difflib
import struct
from typing import Any

import transformers

from tojax.errors import BadCheckpoint, MissingDependency, Unsupported
from tojax.hf.checkpoint import Checkpoint


def config_of(found: Checkpoint, trust_remote_code: bool = False) -> Any:
    """The checkpoint's config as transformers reads it."""
    refuse_code(found, trust_remote_code)
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": trust_remote_code}
    if found.gguf is not None:
        _need_gguf()
        options["gguf_file"] = found.gguf.name
    try:
        return transformers.AutoConfig.from_pretrained(found.folder, **options)
    except (ValueError, LookupError, TypeError, OSError, struct.error) as error:
        raise BadCheckpoint(
            f"transformers cannot read the config of {(found.gguf or found.folder).name}",
            where=str(found.gguf or found.folder / "config.json"),
            why=" ".join(str(error).split())[:300],
            do="a newer transformers may know this model; else correct the config",
        ) from error


def model_class(found: Checkpoint, task: str | None = None, trust_remote_code: bool = False) -> Any:
    """The class to load: the task's, or the one that the checkpoint names.

    Raises:
      Unsupported: there is no such task, or the checkpoint brings code and that is not trusted.
    """
    refuse_code(found, trust_remote_code)
    if task is None and found.gguf is not None:
        task = "CausalLM"
    if task is not None:
        return _auto(task)
    named = found.config.get("architectures") or ()
    if own := _own(found.config):  # the auto class runs their code and remembers where it lies
        wanted = (k for k, v in own.items() if v.split(".")[-1] in named)
        return getattr(transformers, next(wanted, next(iter(own))))
    for name in named:
        if cls := getattr(transformers, name, None):
            return cls
    return transformers.AutoModel


def refuse_code(found: Checkpoint, trusted: bool) -> None:
    """Raises Unsupported where a checkpoint brings code of its own and that is not trusted."""
    kinds = ("AutoModel", "AutoConfig")
    files = [v for k, v in _auto_map(found.config).items() if k.startswith(kinds)]
    if files and not trusted:
        raise Unsupported(
            f"{found.folder.name} brings model code of its own ({', '.join(files)})",
            where=str(found.folder / "config.json"),
            why="running code that was downloaded with the weights is refused",
            do="read that code, then pass trust_remote_code=True",
        )


def _auto_map(config: dict[str, Any]) -> dict[str, str]:
    return {k: v for k, v in (config.get("auto_map") or {}).items() if isinstance(v, str)}


def _own(config: dict[str, Any]) -> dict[str, str]:
    """The model classes that a checkpoint brings, by the auto class they stand for."""
    return {k: v for k, v in _auto_map(config).items() if k.startswith("AutoModel")}


def _auto(task: str) -> Any:
    if task == "Base":
        return transformers.AutoModel
    if cls := getattr(transformers, f"AutoModelFor{task}", None):
        return cls
    start = "AutoModelFor"
    known = [n.removeprefix(start) for n in dir(transformers) if n.startswith(start)]
    near = difflib.get_close_matches(task, known, 3, 0.3)
    raise Unsupported(
        f"no head for the task {task!r}",
        where=f"transformers {transformers.__version__}",
        why=f"there is no AutoModelFor{task}",
        do=f"use one of its {len(known)} tasks, such as {', '.join(near or known[:3])}",
    )


def _need_gguf() -> None:
    if not transformers.utils.is_gguf_available():
        raise MissingDependency(
            "GGUF files need the package gguf",
            why="it knows how their blocks are packed",
            do="pip install tojax[gguf]",
        )
