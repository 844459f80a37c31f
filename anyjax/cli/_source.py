"""FOLDER_OR_ID of the command line: a checkpoint, an adapter on one, or a saved model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyjax.errors import BadCheckpoint, HubUnreachable, Unsupported
from anyjax.hf.loading.adapter import CONFIG, WEIGHTS, base_of, is_adapter, read_config
from anyjax.hf.loading.checkpoint import Checkpoint, find_checkpoint, stored_in
from anyjax.hf.loading.hub import download

SAVED = "model.json"


@dataclass(frozen=True)
class ResolvedSource:
    """A checkpoint, and the folder of the adapter on it."""

    checkpoint: Checkpoint
    adapter: Path | None

    @property
    def path(self) -> Path:
        """The path for ``from_pretrained``."""
        return self.checkpoint.gguf or self.checkpoint.folder

    def tokenizer_folder(self) -> Path:
        """Returns the adapter's folder if it has a tokenizer, else that of the base model."""
        if self.adapter is not None and (self.adapter / "tokenizer_config.json").exists():
            return self.adapter
        return self.checkpoint.folder


def resolve(source: str, adapter: str | None = None, **options: Any) -> ResolvedSource:
    """Finds a checkpoint and the adapter on it; nothing heavy is imported.

    Args:
      source: folder or hub id of a checkpoint, or the folder of an adapter.
      adapter: folder or hub id of an adapter.
      **options: as ``anyjax.hf.loading.checkpoint.find_checkpoint`` takes it.
    """
    if adapter is None and is_adapter(source):
        source, adapter = base_of(source), source
        checkpoint = _base(source, adapter, options)
    else:
        checkpoint = find_checkpoint(source, **options)
    if adapter is None:
        return ResolvedSource(checkpoint, None)
    folder = Path(adapter).expanduser()
    folder = folder if folder.exists() or adapter.count("/") != 1 else download(adapter)
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise BadCheckpoint(
                f"{adapter} is no adapter: it has no {name}",
                where=str(folder.absolute()),
                why="an adapter is a folder that PEFT or anyjax finetune wrote",
                do=f"give the folder that holds {CONFIG} and {WEIGHTS}",
            )
    return ResolvedSource(checkpoint, folder)


def _base(source: str, adapter: str, options: dict[str, Any]) -> Checkpoint:
    """Finds the base model of an adapter; if it is missing, the error tells how to name another."""
    try:
        return find_checkpoint(source, **options)
    except (BadCheckpoint, HubUnreachable) as error:
        error.where = f"{Path(adapter) / CONFIG} names it as the base model"
        error.advise(f"name the folder of the base model: MODEL --adapter {adapter}")
        raise


def is_saved(source: str) -> bool:
    """Returns True if ``model.save`` or ``anyjax export`` wrote this folder."""
    folder = Path(source).expanduser()
    return (folder / SAVED).is_file() and not (folder / "config.json").exists()


def model_of(source: ResolvedSource, **options: Any) -> Any:
    """Loads the Model, with a LoRA adapter merged; other adapters run by PEFT's layers."""
    import anyjax

    if source.adapter is None:
        return anyjax.from_pretrained(source.path, **options)
    try:
        from anyjax.train import load_adapter, merge

        return merge(load_adapter(anyjax.from_pretrained(source.path, **options), source.adapter))
    except (Unsupported, ImportError):
        return anyjax.from_pretrained(source.path, adapter=source.adapter, **options)


def adapter_summary(folder: Path) -> dict[str, Any]:
    """Returns kind, rank and sizes of an adapter, from its files' headers."""
    config = read_config(folder / CONFIG)
    tensors = stored_in(folder / WEIGHTS)
    count = 0
    for stored in tensors.values():
        size = 1
        for n in stored.shape:
            size *= n
        count += size
    kind = "DoRA" if config.get("use_dora") else str(config.get("peft_type"))
    summary = {"folder": str(folder), "kind": kind, "rank": config.get("r")}
    return summary | {"tensors": len(tensors), "parameters": count}
