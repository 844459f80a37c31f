"""Adapters (LoRA and others) on top of a checkpoint, through PEFT."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from anyjax.errors import AnyjaxError, BadCheckpoint, MissingDependency, Unsupported
from anyjax.hf.loading.checkpoint import read_json, stored_in
from anyjax.hf.loading.hub import download

if TYPE_CHECKING:
    import torch

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# The heads that PEFT's tasks need, and the weights whose rows are the classes.
TASKS = {
    "SEQ_CLS": "SequenceClassification",
    "TOKEN_CLS": "TokenClassification",
    "QUESTION_ANS": "QuestionAnswering",
}
CLASSES = ("score.weight", "classifier.weight", "classifier.out_proj.weight")


def is_adapter(source: str | os.PathLike[str]) -> bool:
    """Returns whether a folder holds an adapter and no model."""
    folder = Path(source).expanduser()
    return (folder / CONFIG).exists() and not (folder / "config.json").exists()


@dataclass(frozen=True)
class Files:
    """An adapter's folder, its config, and the shapes of its weights."""

    folder: Path
    config: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]

    @property
    def task(self) -> str | None:
        """The adapter's head, as in ``AutoModelFor...``; None for most models' own."""
        kind = self.config.get("task_type")
        return TASKS.get(kind) if isinstance(kind, str) else None

    @property
    def reads_base(self) -> bool:
        """Whether PEFT computes the adapter from the model's weights before it is loaded."""
        return self.config.get("init_lora_weights") not in (True, False, None, "gaussian")

    @property
    def classes(self) -> int | None:
        """The number of classes of a stored classification head; None without one."""
        rows = {v[0] for k, v in self.shapes.items() if k.endswith(CLASSES) and v}
        return rows.pop() if len(rows) == 1 and self.task in [*TASKS.values()][:2] else None


def base_of(adapter: str | os.PathLike[str]) -> str:
    """Returns the hub id or the folder of the checkpoint that an adapter was trained on.

    A relative folder in the adapter's config is looked for here and above the adapter's folder: it
    may have been written in another working directory.

    Raises:
      BadCheckpoint: the config names no checkpoint, or a folder that does not exist.
    """
    file = Path(adapter).expanduser() / CONFIG
    base = read_config(file).get("base_model_name_or_path")
    if not base or not isinstance(base, str):
        raise BadCheckpoint(
            f"{CONFIG} names no base_model_name_or_path",
            where=str(file),
            why="an adapter holds the difference to a model's weights only",
            do="name the model: anyjax.from_pretrained(model, adapter=folder)",
        )
    return _resolve_base(base, file)


def _resolve_base(base: str, file: Path) -> str:
    """Returns the folder of this name, here or above the adapter's; the name, for a hub id."""
    if (folder := Path(base).expanduser()).is_dir():
        return str(folder)
    for parent in file.resolve().parents:
        if (parent / base / "config.json").is_file():
            return str(parent / base)
    if base.startswith((".", "/", "~")) or base.count("/") > 1:
        raise BadCheckpoint(
            f"the model that the adapter {file.parent.name} was trained on is not here",
            where=str(file),
            why=f"base_model_name_or_path is {base}, and there is no such folder",
            do="name the model: anyjax.from_pretrained(model, adapter=folder), "
            "or anyjax generate MODEL --adapter FOLDER",
        )
    return base


def files_of(adapter: str | os.PathLike[str]) -> Files:
    """Returns the files of an adapter in a folder or on the hub, before anything is loaded.

    Raises:
      BadCheckpoint: there is no adapter, or it is pickled or damaged.
    """
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
    config = read_config(folder / CONFIG)
    return Files(folder, config, {k: v.shape for k, v in stored_in(folder / WEIGHTS).items()})


def read_config(file: Path) -> dict[str, Any]:
    """Reads an adapter's config.

    Raises:
      BadCheckpoint: it is none.
    """
    config = read_json(file)
    if not isinstance(config, dict) or not isinstance(config.get("peft_type"), str):
        raise BadCheckpoint(
            f"{CONFIG} is not one that PEFT writes",
            where=str(file),
            why="it names no peft_type",
            do="restore the file",
        )
    return config


def put_on(module: torch.nn.Module, files: Files) -> torch.nn.Module:
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
        # loaded a second time: only load_adapter reports unused weights
        unused = adapted.load_adapter(folder, "default", is_trainable=True).unexpected_keys
    if missing := [str(w.message) for w in caught if "missing adapter keys" in str(w.message)]:
        raise _unfit(folder, missing[0])
    if unused:
        why = f"{len(unused)} of its {len(files.shapes)} weights are not used: {min(unused)}"
        raise _unfit(folder, why)
    return adapted.get_base_model().eval()


def _check_kind(files: Files, peft: ModuleType) -> None:
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


def _check_sizes(files: Files) -> None:
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
