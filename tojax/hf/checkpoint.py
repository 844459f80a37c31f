"""A checkpoint on disk or on the hub, looked at before anything is loaded; needs neither torch nor
JAX.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tojax.errors import BadCheckpoint, HubUnreachable

PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


@dataclass(frozen=True)
class Checkpoint:
    """A folder with ``config.json`` and, as far as they are there, safetensors files."""

    folder: Path
    config: dict[str, Any]
    weights: list[Path]

    def shapes(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """(dtype, shape) of every stored tensor, from the files' headers alone."""
        from safetensors import SafetensorError, safe_open

        found = {}
        for file in self.weights:
            try:
                with safe_open(file, framework="numpy") as opened:
                    for name in opened.keys():  # noqa: SIM118 (no mapping)
                        view = opened.get_slice(name)
                        found[name] = (view.get_dtype(), tuple(view.get_shape()))
            except (SafetensorError, OSError) as error:
                raise BadCheckpoint(
                    f"{file.name} is no complete safetensors file",
                    where=str(file),
                    why=str(error).splitlines()[0],
                    do="copy or download the file again and compare its size with the original's",
                ) from None
        return found


def find(
    source: str | os.PathLike, *, need_weights: bool = True, allow_pickle: bool = False
) -> Checkpoint:
    """The checkpoint that a folder or hub id names; hub ids are downloaded, with progress bars.

    Raises:
      BadCheckpoint: no config, unreadable config, pickled, missing or truncated weights.
      HubUnreachable: it is no folder and the hub gives no answer.
    """
    folder = Path(source).expanduser()
    if not folder.is_dir():
        if folder.exists() or str(source).startswith((".", "/", "~")) or str(source).count("/") > 1:
            raise BadCheckpoint(
                f"{source} is no folder",
                where=f"the working folder is {Path.cwd()}",
                why="a checkpoint is a folder with config.json, or the hub id of one (owner/name)",
                do="give the folder that holds config.json",
            )
        folder = _download(str(source), allow_pickle)
    config = _config(folder)
    weights = (
        _weights(folder, allow_pickle) if need_weights else sorted(folder.glob("*.safetensors"))
    )
    found = Checkpoint(folder, config, weights)
    if need_weights:
        found.shapes()
    return found


def _config(folder: Path) -> dict[str, Any]:
    file = folder / "config.json"
    if not file.exists():
        inside = ", ".join(sorted(p.name for p in folder.iterdir())[:6]) or "nothing"
        raise BadCheckpoint(
            f"{folder.name or folder} is no checkpoint: it has no config.json",
            where=str(folder.absolute()),
            why=f"the folder holds {inside}",
            do="give the folder that transformers' save_pretrained wrote",
        )
    try:
        config = json.loads(file.read_text())
    except ValueError as error:
        raise BadCheckpoint(
            "config.json is no JSON", where=str(file), why=str(error), do="restore the file"
        ) from None
    if not isinstance(config, dict) or "model_type" not in config:
        raise BadCheckpoint(
            "config.json names no model_type",
            where=str(file),
            why="without it nobody knows which architecture this is",
            do="use a checkpoint in the Hugging Face format (not a training framework's own)",
        )
    return config


def _weights(folder: Path, allow_pickle: bool) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.exists():
        named = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        if missing := [n for n in named if not (folder / n).exists()]:
            raise BadCheckpoint(
                f"{len(missing)} of {len(named)} weight files are missing: "
                + ", ".join(missing[:4]),
                where=str(folder),
                why=f"{index.name} lists them",
                do="finish the download, or copy the missing files into the folder",
            )
        return [folder / n for n in named]
    files = sorted(folder.glob("*.safetensors"))
    pickles = sorted(
        p.name for pattern in PICKLES for p in folder.glob(pattern) if p.name != "training_args.bin"
    )
    if files or (pickles and allow_pickle):
        return files
    if pickles:
        raise BadCheckpoint(
            f"the weights are pickled ({', '.join(pickles[:3])})",
            where=str(folder),
            why="loading a pickle runs whatever code is in it",
            do="convert them to safetensors, or pass allow_pickle=True (--allow-pickle)",
        )
    raise BadCheckpoint(
        f"{folder.name or folder} has a config.json and no weights",
        where=str(folder.absolute()),
        why="there is no *.safetensors file in it",
        do="download the weights, too; `tojax inspect` works without them",
    )


def _download(name: str, allow_pickle: bool) -> Path:
    import huggingface_hub
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    ignored = ["*.msgpack", "*.h5", "*.onnx", "*.gguf"] + ([] if allow_pickle else list(PICKLES))
    try:
        return Path(huggingface_hub.snapshot_download(name, ignore_patterns=ignored))
    except HFValidationError as error:
        raise BadCheckpoint(
            f"{name!r} is neither a folder nor a hub id",
            where=f"the working folder is {Path.cwd()}",
            why=str(error).splitlines()[0],
            do="give a folder or owner/name",
        ) from None
    except RepositoryNotFoundError as error:
        raise BadCheckpoint(
            f"the hub has no model {name!r}, or you may not see it",
            where=huggingface_hub.constants.ENDPOINT,
            why=str(error).splitlines()[0],
            do="check the name; for a private or gated model log in with `hf auth login`",
        ) from None
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        offline = os.environ.get("HF_HUB_OFFLINE") == "1"
        raise HubUnreachable(
            f"cannot reach the Hugging Face hub to fetch {name!r}",
            where="not a folder here, and not in the local cache",
            why="HF_HUB_OFFLINE=1 forbids it" if offline else str(error).splitlines()[0],
            do="give a local checkpoint folder, or connect to the network and try again",
        ) from None
