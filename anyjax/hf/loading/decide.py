"""The decision about a checkpoint: transformers' class, its head, its config, the dtype."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
import transformers
from transformers import CONFIG_MAPPING

from anyjax.errors import AnyjaxError, BadCheckpoint, MissingDependency, Unsupported, WrongValue
from anyjax.hf.loading.find.adapter import AdapterFiles
from anyjax.hf.loading.find.checkpoint import Checkpoint

# Model types that transformers 5.0 left out.
REMOVED = """bort deta efficientformer ernie_m gptsan-japanese graphormer jukebox mctct mega mmbt
nat nezha open-llama qdqbert realm retribert speech_to_text_2 tapex trajectory_transformer
transfo-xl tvlt van vit_hybrid xlm-prophetnet"""
CONFIG = "correct the config, or try a newer transformers"
AGAIN = "copy or download the file again, or try a newer transformers"


@dataclass(frozen=True)
class Decision:
    """The model that a checkpoint becomes.

    Attributes:
      checkpoint: its files.
      cls: transformers' class: that of a task, or the one that the checkpoint names.
      dtype: of the weights; "auto" is the checkpoint's own.
      trusted: whether the checkpoint's own code may run.
      chosen: whether the head need not be the checkpoint's, whose weights it may leave out.
      adapter: the files of the adapter on it.
      classes: the number of classes of the adapter's head; None where it is the config's.
      added: names of weights that the adapter has, and the checkpoint may lack.
    """

    checkpoint: Checkpoint
    cls: Any
    dtype: torch.dtype | str
    trusted: bool = False
    chosen: bool = False
    adapter: AdapterFiles | None = None
    classes: int | None = None
    added: Collection[str] = ()

    @cached_property
    def config(self) -> transformers.PretrainedConfig:
        """The config as transformers reads it, without quantization."""
        checkpoint, do = self.checkpoint, CONFIG
        options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": self.trusted}
        if checkpoint.gguf is not None:
            _need_gguf()
            options["gguf_file"], do = checkpoint.gguf.name, AGAIN
        with refusing(checkpoint, "read the config of", do):
            config = transformers.AutoConfig.from_pretrained(checkpoint.folder, **options)
        for subconfig in (config, getattr(config, "text_config", None)):
            for name in ("quantization_config", "compression_config"):  # matrices become floats
                if hasattr(subconfig, name):
                    delattr(subconfig, name)
        if self.classes is not None:
            config.num_labels = self.classes
        return config

    def skeleton(self, device: str = "meta", **options: Any) -> torch.nn.Module:
        """Builds the module in evaluation mode; on the meta device it is shapes without weights."""
        build, config = getattr(self.cls, "_from_config", None) or self.cls.from_config, self.config
        with quiet(), refusing(self.checkpoint, "build"), torch.device(device):
            return build(config, **options).eval()


def decide(
    checkpoint: Checkpoint,
    task: str | None = None,
    dtype: object = None,
    trust_remote_code: bool = False,
    adapter: AdapterFiles | None = None,
) -> Decision:
    """Decides what is to be made of a checkpoint; nothing of its weights is read.

    Args:
      checkpoint: its files.
      task, dtype, trust_remote_code: as for ``from_pretrained``.
      adapter: the files of an adapter on it, which may need a head of its own.

    Raises:
      BadCheckpoint: the installed transformers has no such model type.
      Unsupported: there is no such task, or the checkpoint contains code that is not trusted.
      WrongValue: the dtype is none of weights.
    """
    _refuse_code(checkpoint, trust_remote_code)
    _refuse_unknown(checkpoint, trust_remote_code)
    head = None if adapter is None else adapter.task
    if task is None and checkpoint.gguf is None:
        architectures = checkpoint.config.get("architectures") or ()
        task = None if any(x.endswith(f"For{head}") for x in architectures) else head
    cls, kind = _class_of(checkpoint, task), _torch_dtype(dtype)
    chosen = task is not None and checkpoint.gguf is None
    decision = Decision(checkpoint, cls, kind, trust_remote_code, chosen, adapter)
    if adapter is None or task is None or task != head:
        return decision
    added = [name.removeprefix("base_model.model.") for name in adapter.shapes]
    return replace(decision, classes=adapter.classes, added=added)


def _torch_dtype(dtype: Any) -> torch.dtype | str:
    if dtype is None or isinstance(dtype, torch.dtype):
        return "auto" if dtype is None else dtype
    import jax.numpy as jnp

    from anyjax.torch.core.dtypes import TO_TORCH

    torch_dtypes = {d.name: t for d, t in TO_TORCH.items() if jnp.issubdtype(d, jnp.floating)}
    try:
        return torch_dtypes[jnp.dtype(dtype).name]
    except (TypeError, KeyError):
        raise WrongValue(
            f"dtype={dtype!r}",
            why="weights are floating-point numbers that torch and JAX both know",
            do=f"use one of {', '.join(sorted(torch_dtypes))}",
        ) from None


def _class_of(checkpoint: Checkpoint, task: str | None) -> Any:
    if task is None and checkpoint.gguf is not None:
        task = "CausalLM"
    if task is not None:
        return _auto_class(task)
    architectures = checkpoint.config.get("architectures") or ()
    if own_classes := _own_classes(checkpoint.config):
        # their auto class runs the code, and remembers where it lies
        auto_names = (k for k, v in own_classes.items() if v.split(".")[-1] in architectures)
        return getattr(transformers, next(auto_names, next(iter(own_classes))))
    for name in architectures:
        if cls := getattr(transformers, name.removeprefix("Flax"), None):  # of Flax's checkpoints
            return cls
    return transformers.AutoModel


def _refuse_unknown(checkpoint: Checkpoint, trusted: bool) -> None:
    """Raises BadCheckpoint for a model_type that the installed transformers does not have."""
    model_type = checkpoint.config.get("model_type")
    has_own_code = "AutoConfig" in _auto_map(checkpoint.config)
    if model_type is None or model_type in CONFIG_MAPPING or (has_own_code and trusted):
        return
    installed = transformers.__version__
    writer = str(checkpoint.config.get("transformers_version", ""))
    if model_type in REMOVED.split():
        raise BadCheckpoint(
            f"the model type {model_type!r} is not in transformers {installed} any more",
            where=str(checkpoint.folder / "config.json"),
            why="transformers 4 had it, and 5 left it out",
            do="use another model: anyjax works with transformers 5",
        )
    newer = bool(writer) and _release(writer) > _release(installed)
    near = difflib.get_close_matches(str(model_type), [*CONFIG_MAPPING], 3, 0.6)
    upgrade = f"pip install 'transformers>={writer}', which wrote this config"
    correction = f"correct model_type (near is {', '.join(near)})" if near else "correct model_type"
    raise BadCheckpoint(
        f"transformers {installed} does not know the model type {model_type!r}",
        where=str(checkpoint.folder / "config.json"),
        why=f"the config was written by transformers {writer}"
        if writer
        else "none of its models is one",
        do=upgrade if newer else f"{correction}, or try a newer transformers",
    )


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _refuse_code(checkpoint: Checkpoint, trusted: bool) -> None:
    """Raises Unsupported for a checkpoint that contains model code, unless it is trusted."""
    kinds = ("AutoModel", "AutoConfig")
    auto_map = checkpoint.config.get("auto_map") or {}
    files = [str(v)[:80] for k, v in auto_map.items() if k.startswith(kinds)]
    if files and not trusted:
        raise Unsupported(
            f"{checkpoint.folder.name} brings model code of its own ({', '.join(files)})",
            where=str(checkpoint.folder / "config.json"),
            why="running code that was downloaded with the weights is refused",
            do="read that code, then pass trust_remote_code=True",
        )


def _auto_map(config: dict[str, Any]) -> dict[str, str]:
    return {k: v for k, v in (config.get("auto_map") or {}).items() if isinstance(v, str)}


def _own_classes(config: dict[str, Any]) -> dict[str, str]:
    """Returns the model classes that a checkpoint defines, by their auto class."""
    return {k: v for k, v in _auto_map(config).items() if k.startswith("AutoModel")}


def _auto_class(task: str) -> Any:
    if task == "Base":
        return transformers.AutoModel
    if cls := getattr(transformers, f"AutoModelFor{task}", None):
        return cls
    prefix = "AutoModelFor"
    tasks = [n.removeprefix(prefix) for n in dir(transformers) if n.startswith(prefix)]
    near = difflib.get_close_matches(task, tasks, 3, 0.3)
    raise Unsupported(
        f"no head for the task {task!r}",
        where=f"transformers {transformers.__version__}",
        why=f"there is no AutoModelFor{task}",
        do=f"use one of its {len(tasks)} tasks, such as {', '.join(near or tasks[:3])}",
    )


def _need_gguf() -> None:
    if not transformers.utils.is_gguf_available():
        raise MissingDependency(
            "GGUF files need the package gguf",
            why="it knows how their blocks are packed",
            do="pip install anyjax[gguf]",
        )


@contextlib.contextmanager
def refusing(checkpoint: Checkpoint, action: str, do: str = CONFIG) -> Iterator[None]:
    """Raises BadCheckpoint for any exception of transformers' own code."""
    try:
        yield
    except (AnyjaxError, MemoryError):
        raise
    except Exception as error:
        file = checkpoint.gguf or checkpoint.folder
        message = " ".join(str(error).split())[:300]
        raise BadCheckpoint(
            f"transformers cannot {action} {file.name}",
            where=str(file),
            why=message
            if isinstance(error, (ValueError, OSError))
            else f"{type(error).__name__}: {message}",
            do=do,
        ) from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Turns off transformers' warnings and progress bars; what matters is raised as an error."""
    logging = transformers.utils.logging
    # The handlers' levels: setting a logger's level would clear Python's cache of all levels
    # (https://github.com/python/cpython/issues/75145, so in 3.11).
    handlers, bars = logging.get_logger("transformers").handlers, logging.is_progress_bar_enabled()
    levels = [(handler, handler.level) for handler in handlers]
    for handler in handlers:
        handler.setLevel(logging.ERROR)
    if bars:
        logging.disable_progress_bar()
    try:
        yield
    finally:
        for handler, level in levels:
            handler.setLevel(level)
        if bars:
            logging.enable_progress_bar()
