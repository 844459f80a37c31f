"""Which transformers class a checkpoint is for, and its config."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Iterator
from typing import Any

import transformers
from transformers import CONFIG_MAPPING

from tojax.errors import BadCheckpoint, MissingDependency, TojaxError, Unsupported
from tojax.hf.loading.checkpoint import Checkpoint

# Model types that transformers 5.0 left out.
REMOVED = """bort deta efficientformer ernie_m gptsan-japanese graphormer jukebox mctct mega mmbt
nat nezha open-llama qdqbert realm retribert speech_to_text_2 tapex trajectory_transformer
transfo-xl tvlt van vit_hybrid xlm-prophetnet"""


def config_of(found: Checkpoint, trust_remote_code: bool = False) -> Any:
    """The checkpoint's config as transformers reads it."""
    refuse_code(found, trust_remote_code)
    _refuse_unknown(found, trust_remote_code)
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": trust_remote_code}
    if found.gguf is not None:
        _need_gguf()
        options["gguf_file"] = found.gguf.name
    with refusing(found, "read the config of", AGAIN if found.gguf else CONFIG):
        config = transformers.AutoConfig.from_pretrained(found.folder, **options)
    for part in (config, getattr(config, "text_config", None)):
        for name in ("quantization_config", "compression_config"):  # its matrices come as floats
            if hasattr(part, name):
                delattr(part, name)
    return config


CONFIG = "correct the config, or try a newer transformers"
AGAIN = "copy or download the file again, or try a newer transformers"


@contextlib.contextmanager
def refusing(found: Checkpoint, what: str, do: str = CONFIG) -> Iterator[None]:
    """Whatever transformers' own code raises about a checkpoint as BadCheckpoint."""
    try:
        yield
    except (TojaxError, MemoryError):
        raise
    except Exception as error:
        said = " ".join(str(error).split())[:300]
        file = found.gguf or found.folder
        raise BadCheckpoint(
            f"transformers cannot {what} {file.name}",
            where=str(file),
            why=said
            if isinstance(error, (ValueError, OSError))
            else f"{type(error).__name__}: {said}",
            do=do,
        ) from error


def _refuse_unknown(found: Checkpoint, trusted: bool) -> None:
    """Raises BadCheckpoint for a model_type that this transformers does not have."""
    kind, own = found.config.get("model_type"), "AutoConfig" in _auto_map(found.config)
    if kind is None or kind in CONFIG_MAPPING or (own and trusted):
        return
    here, wrote = transformers.__version__, str(found.config.get("transformers_version", ""))
    if kind in REMOVED.split():
        raise BadCheckpoint(
            f"the model type {kind!r} is not in transformers {here} any more",
            where=str(found.folder / "config.json"),
            why="transformers 4 had it, and 5 left it out",
            do="use another model: tojax works with transformers 5",
        )
    newer = bool(wrote) and _release(wrote) > _release(here)
    near = difflib.get_close_matches(str(kind), [*CONFIG_MAPPING], 3, 0.6)
    wanted = f"pip install 'transformers>={wrote}', which wrote this config"
    named = f"correct model_type (near is {', '.join(near)})" if near else "correct model_type"
    raise BadCheckpoint(
        f"transformers {here} does not know the model type {kind!r}",
        where=str(found.folder / "config.json"),
        why=f"the config was written by transformers {wrote}"
        if wrote
        else "none of its models is one",
        do=wanted if newer else f"{named}, or try a newer transformers",
    )


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def model_class(found: Checkpoint, task: str | None = None, trust_remote_code: bool = False) -> Any:
    """The class to load: the task's, or the one that the checkpoint names.

    Raises:
      Unsupported: there is no such task, or the checkpoint brings code and that is not trusted.
    """
    refuse_code(found, trust_remote_code)
    _refuse_unknown(found, trust_remote_code)
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
