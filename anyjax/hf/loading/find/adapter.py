"""The files of an adapter (LoRA and others), and the checkpoint that it was trained on."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyjax.errors import BadCheckpoint
from anyjax.hf.loading.find.checkpoint import Checkpoint, find_checkpoint, read_json, stored_in
from anyjax.hf.loading.find.hub import download

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
class AdapterFiles:
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


def find_with_adapter(
    source: str | os.PathLike[str], adapter: str | os.PathLike[str] | None, **options: Any
) -> tuple[Checkpoint, AdapterFiles | None]:
    """Finds a checkpoint and the adapter on it; the folder of an adapter names its checkpoint."""
    if adapter is None and is_adapter(source):
        source, adapter = base_of(source), source
    files = None if adapter is None else files_of(adapter)
    return find_checkpoint(source, **options), files


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


def files_of(adapter: str | os.PathLike[str]) -> AdapterFiles:
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
    return AdapterFiles(
        folder, config, {k: v.shape for k, v in stored_in(folder / WEIGHTS).items()}
    )


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
