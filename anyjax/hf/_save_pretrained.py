"""A model as a Hugging Face checkpoint, through transformers' own writer."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from transformers import PreTrainedModel

from anyjax import multiprocess
from anyjax.errors import Unsupported
from anyjax.hf import model_card
from anyjax.hf.loading.decide import quiet
from anyjax.hf.loading.find.hub import PICKLES
from anyjax.hf.loading.source import PretrainedSource, view_as_torch
from anyjax.model import Model
from anyjax.saved import whole
from anyjax.takes_model import check_model

WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "*.bin.index.json", *PICKLES)
# Files of tokenizers and processors.
PROCESSING = (
    "*token*.json",
    "*.jinja",
    "*.model",
    "*.tiktoken",
    "*processor_config.json",
    "merges.txt",
    "vocab.*",
)


def save_pretrained(
    model: Model,
    folder: str | os.PathLike[str],
    *,
    max_shard_size: object = "5GB",
    card: bool | str = False,
) -> None:
    """Writes a Hugging Face checkpoint that transformers loads, with the model's params and state.

    Weights get the names and the layout of the original checkpoint again; params are written in the
    dtype that they have. Tokenizer and processor files of the checkpoint that the model came from
    are copied. A checkpoint in the folder is replaced when the new one is complete; files of other
    kinds in it are kept. A model on a mesh of several processes is saved by all of them together:
    array by array comes to the first one, which writes and needs memory for all of them.

    Args:
      model: from ``from_pretrained``, or from ``from_torch`` of a transformers model.
      folder: where to; a new folder, an empty one or a checkpoint.
      max_shard_size: a larger model is written in several files, such as "5GB" each.
      card: also write README.md, a model card with a section on its use in JAX; the hub id under
        which it will be, or True for the name of the folder. A card that is there goes on.

    Raises:
      Unsupported: the model is no transformers model.
      WrongArguments: the folder holds something else.

    Example:
      >>> import tempfile
      >>> model = anyjax.from_pretrained("examples/tiny-llama")
      >>> folder = tempfile.mkdtemp()
      >>> anyjax.save_pretrained(model, folder)
      >>> len(anyjax.from_pretrained(folder).params) == len(model.params)
      True
    """
    check_model(model, "save_pretrained")
    module, source = model.source.module, model.source
    if not isinstance(module, PreTrainedModel):
        raise Unsupported(
            f"{source.name} is no transformers model",
            why="a Hugging Face checkpoint needs its config",
            do="use model.save(folder), or save model.to_torch().state_dict() yourself",
        )

    def write(params: dict, state: dict) -> None:
        updated = model.with_params(params).with_state(state)
        _write_checkpoint(updated, module, Path(folder).expanduser(), max_shard_size, card)

    multiprocess.by_one(write, model.params, model.state)


def _write_checkpoint(
    model: Model,
    module: PreTrainedModel,
    target: Path,
    max_shard_size: object,
    card: bool | str = False,
) -> None:
    source = model.source
    origin = source.folder if isinstance(source, PretrainedSource) else None
    if origin is None and module.name_or_path:
        origin = Path(module.name_or_path)

    def filled() -> PreTrainedModel:
        if isinstance(source, PretrainedSource):
            return source.filled_module(model.params, model.state, view_as_torch)
        return model.to_torch()

    save_module(filled, target, origin, max_shard_size, card)


def save_module(
    module: Callable[[], PreTrainedModel],
    target: Path,
    origin: Path | None,
    max_shard_size: object,
    card: bool | str = False,
) -> None:
    """Writes the checkpoint of a module, with the tokenizer of the folder that it came from."""
    with whole(target, "config.json") as scratch:
        with quiet():
            filled = module()
            filled.save_pretrained(scratch, max_shard_size=max_shard_size)
        _copy_missing(origin, scratch, PROCESSING)
        if card:
            name = card if isinstance(card, str) else target.name
            cards = [x for x in (target, origin) if x and (x / model_card.FILE).is_file()]
            model_card.write(filled, scratch, name, cards[0] if cards else None)
        if target.is_dir():
            _copy_missing(target, scratch, ("*",), but=WEIGHTS)


def _copy_missing(
    source: Path | None, target: Path, patterns: tuple[str, ...], but: tuple[str, ...] = ()
) -> None:
    if source is None or not source.is_dir():
        return
    for item in sorted({p for pattern in patterns for p in source.glob(pattern)}):
        if (target / item.name).exists() or any(item.match(pattern) for pattern in but):
            continue
        if item.is_dir():
            shutil.copytree(item, target / item.name, symlinks=True)
        else:
            shutil.copy2(item, target / item.name)
