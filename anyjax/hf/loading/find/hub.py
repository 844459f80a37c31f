"""Checkpoints of the Hugging Face hub, downloaded."""

from __future__ import annotations

import os
from pathlib import Path

from anyjax.errors import BadCheckpoint, HubUnreachable

PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
FLAX = "flax_model.msgpack"  # of transformers 4


def download(name: str, allow_pickle: bool = False, gguf_file: str | None = None) -> Path:
    """Downloads the hub's files for this id; returns their folder. See ``find_checkpoint``."""
    import huggingface_hub
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    ignored = ["*.msgpack", "*.h5", "*.onnx"] + ([] if allow_pickle else list(PICKLES))
    ignored.append("*.safetensors" if gguf_file else "*.gguf")
    allowed = ["*.json", "*.jinja", "*.model", "*.txt", gguf_file] if gguf_file else None
    fetch = huggingface_hub.snapshot_download
    try:
        folder = Path(fetch(name, ignore_patterns=ignored, allow_patterns=allowed))
        if not gguf_file and not any(folder.glob("*.safetensors")):
            fetch(name, allow_patterns=[f"{FLAX.partition('.')[0]}*.msgpack*"])
        return folder
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
        reason = str(error).splitlines()[0].removeprefix("Got: ")
        address = huggingface_hub.constants.ENDPOINT
        raise HubUnreachable(
            f"cannot reach the Hugging Face hub to fetch {name!r}",
            where="no folder of that name in the working folder, and not in the local cache",
            why="HF_HUB_OFFLINE=1 forbids it" if offline else f"{address}: {reason}",
            do="give a local checkpoint folder, or connect and try again; behind a firewall set "
            "HTTPS_PROXY, or HF_ENDPOINT to a mirror",
        ) from None
