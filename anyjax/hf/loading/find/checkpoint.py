"""A checkpoint's files on disk or on the hub, checked before anything is loaded."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from anyjax.errors import BadCheckpoint
from anyjax.files import refuse_pointer
from anyjax.hf.loading.find import other_formats
from anyjax.hf.loading.find.config import check_config, check_quantization, entries, quantization_of
from anyjax.hf.loading.find.hub import FLAX, PICKLES, download

WEIGHTS = "model.safetensors"
# Suffixes of files that loaders read.
READ = {".json", ".safetensors", ".msgpack", ".jinja", ".model", ".txt"}
READ |= {pattern[1:] for pattern in PICKLES}
MANY_LAYERS = 1000  # so many are built within seconds


class Stored(NamedTuple):
    """The place of a tensor's bytes in a file."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int


@dataclass(frozen=True)
class Checkpoint:
    """A folder with ``config.json`` and safetensors files, if any; or one GGUF file with both.

    Attributes:
      quantization: what config.json says about quantized weights, {} where there are none.
      headers: the tensors of each file of ``weights``, where weights are needed.
      flax: the msgpack files of a checkpoint that has Flax's weights alone.
      pickled: whether the weights may run code, and are allowed to.
    """

    folder: Path
    config: dict[str, Any]
    weights: list[Path]
    gguf: Path | None = None
    quantization: dict[str, Any] = field(default_factory=dict)
    headers: dict[Path, dict[str, Stored]] = field(default_factory=dict)
    flax: tuple[Path, ...] = ()
    pickled: bool = False

    def shapes(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Returns (dtype, shape) of every stored tensor, from the files' headers alone."""
        return {k: (v.dtype, v.shape) for file in self.weights for k, v in stored_in(file).items()}


def find_checkpoint(
    source: str | os.PathLike[str],
    *,
    need_weights: bool = True,
    allow_pickle: bool = False,
    gguf_file: str | None = None,
) -> Checkpoint:
    """Finds the checkpoint in a folder, a GGUF file or, downloaded with progress bars, on the hub.

    Raises:
      BadCheckpoint: the config is missing or unreadable, or weights are pickled, missing or
        truncated.
      HubUnreachable: there is no such folder, and the hub does not answer.
      Unsupported: the weights are quantized in a way that is not read.
    """
    folder = Path(source).expanduser()
    if folder.suffix == ".gguf" and gguf_file is None:
        folder, gguf_file = folder.parent, folder.name
    folder = _folder_of(folder, os.fspath(source), allow_pickle, gguf_file)
    if gguf_file is not None:
        return Checkpoint(folder, {}, [], _gguf(folder / gguf_file))
    for file in folder.iterdir():
        if file.suffix in READ:
            check_regular(file)
    config = read_json(config_file := folder / "config.json")
    if (generation := folder / "generation_config.json").exists():
        read_json(generation)  # transformers goes on without one that is damaged
    check_config(config, config_file)
    quantization = quantization_of(config)
    if not need_weights:
        stored_files = sorted(folder.glob("*.safetensors"))
        return Checkpoint(folder, config, stored_files, quantization=quantization)
    check_quantization(quantization, config_file)
    files = _weight_files(folder, config, allow_pickle)
    flax = tuple(x for x in files if x.suffix == ".msgpack")
    headers = {x: stored_in(x) for x in files if x not in flax}
    check_layers(folder, config, sum(map(len, headers.values())))
    weights, pickled = [*headers], not files
    return Checkpoint(folder, config, weights, None, quantization, headers, flax, pickled)


def _folder_of(folder: Path, source: str, allow_pickle: bool, gguf_file: str | None) -> Path:
    """Returns the folder, or the one that the hub's files of this name are downloaded to."""
    if not source:
        raise BadCheckpoint(
            "the name of the checkpoint is empty",
            why="a checkpoint is a folder with config.json, or the hub id of one (owner/name)",
            do="give one of them; '.' is the working folder",
        )
    if not folder.is_dir():
        if format_error := other_formats.error_of(folder):
            raise format_error
        if folder.exists() or source.startswith((".", "/", "~")) or source.count("/") > 1:
            on_hub = re.match(r"https?://[^/]+/([^/]+(/[^/]+)?)", source)
            raise BadCheckpoint(
                f"{source} is no folder",
                where=f"the working folder is {Path.cwd()}",
                why="a checkpoint is a folder with config.json, or the hub id of one (owner/name)",
                do=f"give the hub id: {on_hub[1]!r}"
                if on_hub
                else "give the folder with config.json",
            )
        folder = download(source, allow_pickle, gguf_file)
    if gguf_file is None and not (folder / "config.json").exists():
        for file in sorted(folder.iterdir()):
            refuse_pointer(file)
        file_names = ", ".join(sorted(p.name for p in folder.iterdir())[:6]) or "nothing"
        raise other_formats.error_of(folder) or BadCheckpoint(
            f"{folder.name or folder} is no checkpoint: it has no config.json",
            where=str(folder.absolute()),
            why=f"the folder holds {file_names}",
            do="give the folder that transformers' save_pretrained wrote, or a GGUF file",
        )
    return folder


def _gguf(file: Path) -> Path:
    if not file.is_file():
        gguf_names = sorted(p.name for p in file.parent.glob("*.gguf") if p.is_file())
        raise BadCheckpoint(
            f"there is no {file.name}",
            where=str(file.parent.absolute()),
            why=f"GGUF files there are: {', '.join(gguf_names[:4]) or 'none'}",
            do="give the path of one, or a folder and gguf_file=",
        )
    with file.open("rb") as opened:
        if opened.read(4) != b"GGUF":
            raise BadCheckpoint(
                f"{file.name} is no GGUF file",
                where=str(file),
                why="it does not begin with the letters GGUF",
                do="copy or download the file again",
            )
    return file


def check_regular(file: Path) -> None:
    """Raises BadCheckpoint for folders, pipes and devices: reading from a pipe may never end."""
    if file.exists() and not file.is_file():
        raise BadCheckpoint(
            f"{file.name} is no regular file",
            where=str(file),
            why="it is a folder" if file.is_dir() else "it is a pipe, a socket or a device",
            do="put the file itself, or a link to it, into the folder",
        )
    refuse_pointer(file)


def read_json(file: Path) -> Any:
    """Reads a JSON file.

    Raises:
      BadCheckpoint: it is no regular file, is unreadable, or holds no JSON.
    """
    check_regular(file)
    try:
        return json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        why = str(error).splitlines()[0]
        raise BadCheckpoint(
            f"{file.name} is no JSON", where=str(file), why=why, do="restore the file"
        ) from None


def _weight_files(folder: Path, config: dict[str, Any], allow_pickle: bool) -> list[Path]:
    """Returns the weight files that transformers reads, as it prefers them; none for pickles."""
    weights_name = config.get("transformers_weights") or WEIGHTS
    check_inside(folder / "config.json", [weights_name])
    if os.path.exists(folder / weights_name) and not weights_name.endswith(".json"):
        return [folder / weights_name]
    index = folder / (weights_name if weights_name.endswith(".json") else f"{WEIGHTS}.index.json")
    if index.exists():
        return _shards(folder, index)
    pickles = sorted(
        p.name for pattern in PICKLES for p in folder.glob(pattern) if p.name != "training_args.bin"
    )
    if pickles and allow_pickle:
        for shards in folder.glob("*.bin.index.json"):
            _shards(folder, shards)
        return []
    if (folder / FLAX).exists():
        return [folder / FLAX]
    if (index := folder / f"{FLAX}.index.json").exists():
        return _shards(folder, index)
    if pickles:
        raise BadCheckpoint(
            f"the weights are pickled ({', '.join(pickles[:3])})",
            where=str(folder),
            why="loading a pickle runs whatever code is in it",
            do="convert them to safetensors, or pass allow_pickle=True (--allow-pickle)",
        )
    kinds = (".safetensors", ".gguf")
    unused_files = ", ".join(sorted(p.name for p in folder.iterdir() if p.suffix in kinds)[:4])
    raise BadCheckpoint(
        f"{folder.name or folder} has a config.json and no weights",
        where=str(folder.absolute()),
        why=f"there is no {weights_name} in it"
        + (f", only {unused_files}" if unused_files else ""),
        do="download the weights, too; `anyjax inspect` works without them",
    )


def check_inside(named_in: Path, files: Iterable[object]) -> None:
    """Raises BadCheckpoint for names that are no paths inside the folder.

    A file that is a link is fine: the hub's cache is made of links.
    """
    for name in files:
        path = PurePath(name) if isinstance(name, str) else None
        if path is None or path.is_absolute() or ".." in path.parts or not path.parts:
            raise BadCheckpoint(
                f"{named_in.name} names {name!r} as a file of the weights",
                where=str(named_in),
                why="a checkpoint's files lie in its folder",
                do="do not trust this checkpoint, or put its files into the folder",
            )


def _shards(folder: Path, index: Path) -> list[Path]:
    content = read_json(index)
    try:
        names = content["weight_map"].values()
        check_inside(index, names)
        file_names = sorted(set(names))
    except (KeyError, AttributeError, TypeError) as error:
        raise BadCheckpoint(
            f"{index.name} cannot be read",
            where=str(index),
            why=f"{type(error).__name__}: {error}",
            do="restore the file: it maps the name of every weight to its file",
        ) from None
    # unlike Path.exists it is False for names that are too long, or no text
    if missing := [n for n in file_names if not os.path.exists(folder / n)]:
        raise BadCheckpoint(
            f"{len(missing)} of {len(file_names)} weight files are missing: "
            + ", ".join(missing[:4]),
            where=str(folder),
            why=f"{index.name} lists them",
            do="finish the download, or copy the missing files into the folder",
        )
    return [folder / n for n in file_names]


def check_layers(place: Path, config: dict[str, Any], stored: int) -> None:
    """Raises BadCheckpoint for many more layers than stored weights: building them takes minutes.

    Models that use a layer several times have fewer weights than layers, but not by far.
    """
    counts = {
        path: value
        for path, name, value in entries(config)
        if type(value) is int
        and value > max(MANY_LAYERS, stored)
        and (name in ("depth", "n_layer") or name.endswith("layers"))
    }
    if stored and counts:
        name, count = next(iter(counts.items()))
        raise BadCheckpoint(
            f"the weights are fewer than the layers: the config says {name} = {count}",
            where=str(place),
            why=f"there are {stored} weights: most layers have none",
            do="compare config.json with the weights: anyjax inspect FOLDER",
        )


def stored_in(file: str | os.PathLike[str]) -> dict[str, Stored]:
    """Returns the places of the tensors of a safetensors file.

    Raises:
      BadCheckpoint: the file is incomplete, or none of this format.
    """
    from safetensors import SafetensorError, safe_open

    file = Path(file)
    check_regular(file)
    try:
        with safe_open(file, framework="numpy"):
            pass  # checks that header and size fit
        with open(file, "rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(length))
    except (SafetensorError, OSError, ValueError) as error:
        raise BadCheckpoint(
            f"{file.name} is no complete safetensors file",
            where=str(file),
            why=str(error).splitlines()[0],
            do="copy or download the file again and compare its size with the original's",
        ) from None
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        extent = (8 + length + start, end - start)
        tensors[name] = Stored(file, entry["dtype"], tuple(entry["shape"]), *extent)
    return tensors
