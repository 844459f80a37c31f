"""Adapters (LoRA and others) on top of a module, through PEFT."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from anyjax.errors import AnyjaxError, BadCheckpoint, MissingDependency, Unsupported
from anyjax.hf.loading.find.adapter import CONFIG, AdapterFiles

if TYPE_CHECKING:
    import torch


def put_on(module: torch.nn.Module, files: AdapterFiles) -> torch.nn.Module:
    """Returns the module with the adapter's layers in it; only their weights require a gradient.

    Raises:
      MissingDependency: PEFT is not installed.
      BadCheckpoint: the adapter's weights do not fit its config or the module.
      Unsupported: PEFT does not know this type of adapter, or it is a prompt.
    """
    try:
        import peft
    except ImportError:
        raise MissingDependency(
            "adapters need the package peft",
            why="it knows how they are put into a model",
            do="pip install peft",
        ) from None
    _check_kind(files, peft)
    _check_sizes(files)
    folder = files.folder
    with warnings.catch_warnings(record=True) as caught, _refusing_misfits(folder):
        warnings.simplefilter("always")
        adapted = peft.PeftModel.from_pretrained(module, folder, is_trainable=True)
        # loaded a second time: only load_adapter reports unused weights (also in PEFT 0.21.2:
        # https://github.com/huggingface/peft/pull/2118; try again in 0.22)
        unused = adapted.load_adapter(folder, "default", is_trainable=True).unexpected_keys
    if missing := [str(w.message) for w in caught if "missing adapter keys" in str(w.message)]:
        raise _unfit(folder, missing[0])
    if unused:
        why = f"{len(unused)} of its {len(files.shapes)} weights are not used: {min(unused)}"
        raise _unfit(folder, why)
    return adapted.get_base_model().eval()


def _check_kind(files: AdapterFiles, peft: ModuleType) -> None:
    """Raises Unsupported for adapters that do not change the model's layers."""
    kind = files.config["peft_type"]
    config_class = peft.PEFT_TYPE_TO_CONFIG_MAPPING.get(kind)
    if config_class is None:
        raise Unsupported(
            f"an adapter of type {kind}",
            where=str(files.folder / CONFIG),
            why=f"PEFT {peft.__version__} has no such type",
            do="correct peft_type, or try a newer PEFT",
        )
    if issubclass(config_class, peft.PromptLearningConfig):
        raise Unsupported(
            f"an adapter of type {kind}",
            where=str(files.folder / CONFIG),
            why="it is a prompt that goes before the input, and no change of the model's layers",
            do="use another kind, such as LoRA",
        )


def _check_sizes(files: AdapterFiles) -> None:
    """Raises BadCheckpoint for ranks and numbers of layers far above those of the stored weights:
    PEFT allocates what the config says before it compares.
    """
    config, file = files.config, files.folder / CONFIG
    largest = max((size for shape in files.shapes.values() for size in shape), default=0)
    pattern = config.get("rank_pattern")
    ranks = [config.get("r"), *(pattern.values() if isinstance(pattern, dict) else ())]
    if too_large := [x for x in ranks if isinstance(x, int) and x > largest]:
        raise _unfit(files.folder, f"no weight has the rank of its config: {too_large[0]}"[:99])
    spans = config.get("layer_replication") or ()
    try:
        layers = sum(end - start for start, end in spans)
    except (TypeError, ValueError):
        raise _unfit(files.folder, f"{CONFIG} says layer_replication = {spans!r}"[:200]) from None
    if layers > len(files.shapes):
        raise _unfit(
            files.folder, f"{file.name} makes {layers} layers of {len(files.shapes)} weights"
        )


@contextlib.contextmanager
def _refusing_misfits(folder: Path) -> Iterator[None]:
    """Raises BadCheckpoint for any exception of PEFT's own code."""
    try:
        yield
    except (AnyjaxError, MemoryError):
        raise
    except Exception as error:
        has_plain_text = isinstance(error, (RuntimeError, ValueError))
        prefix = "" if has_plain_text else f"{type(error).__name__}: "
        raise _unfit(folder, f"{prefix}{error}") from error


def _unfit(folder: Path, why: str) -> BadCheckpoint:
    return BadCheckpoint(
        f"the adapter {folder.name} does not fit the model",
        where=str(folder),
        why=" ".join(why.split())[:300],
        do=f"put it on the model that its {CONFIG} names",
    )
