"""What FOLDER_OR_ID names: a checkpoint, an adapter on one, or a saved model."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tojax.errors import BadCheckpoint, HubUnreachable, Unsupported
from tojax.hf.loading.adapter import CONFIG, WEIGHTS, base_of, is_adapter
from tojax.hf.loading.checkpoint import Checkpoint, download, find_checkpoint, stored_in

SAVED = "model.json"


@dataclass(frozen=True)
class Named:
    """A checkpoint, and the folder of the adapter on it."""

    found: Checkpoint
    adapter: Path | None

    @property
    def path(self) -> Path:
        """What ``from_pretrained`` takes."""
        return self.found.gguf or self.found.folder

    def tokenizer_folder(self) -> Path:
        """The adapter's own tokenizer goes before the one of its base model."""
        own = self.adapter is not None and (self.adapter / "tokenizer_config.json").exists()
        return self.adapter if own and self.adapter is not None else self.found.folder


def named(source: str, adapter: str | None = None, **how: Any) -> Named:
    """The checkpoint that the words name; nothing heavy is imported.

    Args:
      source: folder or hub id of a checkpoint, or the folder of an adapter.
      adapter: folder or hub id of an adapter.
      **how: as ``tojax.hf.loading.checkpoint.find_checkpoint`` takes it.
    """
    if adapter is None and is_adapter(source):
        source, adapter = base_of(source), source
        found = _base(source, adapter, how)
    else:
        found = find_checkpoint(source, **how)
    if adapter is None:
        return Named(found, None)
    folder = Path(adapter).expanduser()
    folder = folder if folder.exists() or adapter.count("/") != 1 else download(adapter)
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise BadCheckpoint(
                f"{adapter} is no adapter: it has no {name}",
                where=str(folder.absolute()),
                why="an adapter is a folder that PEFT or tojax finetune wrote",
                do=f"give the folder that holds {CONFIG} and {WEIGHTS}",
            )
    return Named(found, folder)


def _base(source: str, adapter: str, how: dict[str, Any]) -> Checkpoint:
    """The checkpoint that an adapter names; where it is not there, how another one is named."""
    try:
        return find_checkpoint(source, **how)
    except (BadCheckpoint, HubUnreachable) as error:
        error.where = f"{Path(adapter) / CONFIG} names it as the base model"
        error.advise(f"name the folder of the base model: MODEL --adapter {adapter}")
        raise


def is_saved(source: str) -> bool:
    """Whether ``model.save`` or ``tojax export`` wrote this folder."""
    folder = Path(source).expanduser()
    return (folder / SAVED).is_file() and not (folder / "config.json").exists()


def model_of(given: Named, **options: Any) -> Any:
    """The Model, an adapter put into its weights; other kinds than LoRA as PEFT has them."""
    import tojax

    if given.adapter is None:
        return tojax.from_pretrained(given.path, **options)
    try:
        from tojax.train import load_adapter, merge

        return merge(load_adapter(tojax.from_pretrained(given.path, **options), given.adapter))
    except (Unsupported, ImportError):
        return tojax.from_pretrained(given.path, adapter=given.adapter, **options)


def adapter_told(folder: Path) -> dict[str, Any]:
    """What there is to say of an adapter, from its files' headers."""
    config = json.loads((folder / CONFIG).read_text())
    tensors = stored_in(folder / WEIGHTS)
    count = 0
    for stored in tensors.values():
        size = 1
        for n in stored.shape:
            size *= n
        count += size
    kind = "DoRA" if config.get("use_dora") else str(config.get("peft_type"))
    told = {"folder": str(folder), "kind": kind, "rank": config.get("r")}
    return told | {"tensors": len(tensors), "parameters": count}
