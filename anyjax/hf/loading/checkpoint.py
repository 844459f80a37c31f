"""The files of a checkpoint on disk or on the hub, checked before anything is loaded.

Needs neither torch nor JAX.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from anyjax.errors import BadCheckpoint
from anyjax.files import refuse_pointer
from anyjax.hf.loading import other_formats
from anyjax.hf.loading.hub import FLAX, PICKLES, download
from anyjax.hf.loading.quantized import schemes

WEIGHTS = "model.safetensors"
# Suffixes of files that loaders read.
READ = {".json", ".safetensors", ".msgpack", ".jinja", ".model", ".txt"}
READ |= {pattern[1:] for pattern in PICKLES}
MANY_LAYERS = 1000  # so many are built within seconds
MANY_LABELS = 10**6  # transformers names each of them: some 200 MB
SIZES = {
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "vocab_size",
}


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

    ``flax`` are the msgpack files of a checkpoint that has Flax's weights alone.
    """

    folder: Path
    config: dict[str, Any]
    weights: list[Path]
    gguf: Path | None = None
    flax: tuple[Path, ...] = ()

    def shapes(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Returns (dtype, shape) of every stored tensor, from the files' headers alone."""
        return {k: (v.dtype, v.shape) for file in self.weights for k, v in stored_in(file).items()}


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
    if not os.fspath(source):
        raise BadCheckpoint(
            "the name of the checkpoint is empty",
            why="a checkpoint is a folder with config.json, or the hub id of one (owner/name)",
            do="give one of them; '.' is the working folder",
        )
    folder = Path(source).expanduser()
    if folder.suffix == ".gguf" and gguf_file is None:
        folder, gguf_file = folder.parent, folder.name
    if not folder.is_dir():
        if format_error := other_formats.of_file(folder):
            raise format_error
        if folder.exists() or str(source).startswith((".", "/", "~")) or str(source).count("/") > 1:
            on_hub = re.match(r"https?://[^/]+/([^/]+(/[^/]+)?)", str(source))
            raise BadCheckpoint(
                f"{source} is no folder",
                where=f"the working folder is {Path.cwd()}",
                why="a checkpoint is a folder with config.json, or the hub id of one (owner/name)",
                do=f"give the hub id: {on_hub[1]!r}"
                if on_hub
                else "give the folder with config.json",
            )
        folder = download(str(source), allow_pickle, gguf_file)
    if gguf_file is not None:
        return Checkpoint(folder, {}, [], _gguf(folder / gguf_file))
    for file in folder.iterdir():
        if file.suffix in READ:
            check_regular(file)
    config = _config(folder)
    if (generation := folder / "generation_config.json").exists():
        read_json(generation)  # transformers goes on without one that is damaged
    if not need_weights:
        return Checkpoint(folder, config, sorted(folder.glob("*.safetensors")))
    schemes.check_quantization(folder, config)
    weights = _weights(folder, config, allow_pickle)
    flax = tuple(x for x in weights if x.suffix == ".msgpack")
    checkpoint = Checkpoint(folder, config, [x for x in weights if x not in flax], flax=flax)
    check_layers(folder, config, len(checkpoint.shapes()))
    return checkpoint


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


def _config(folder: Path) -> dict[str, Any]:
    file = folder / "config.json"
    if not file.exists():
        if format_error := other_formats.of_folder(folder):
            raise format_error
        file_names = ", ".join(sorted(p.name for p in folder.iterdir())[:6]) or "nothing"
        raise BadCheckpoint(
            f"{folder.name or folder} is no checkpoint: it has no config.json",
            where=str(folder.absolute()),
            why=f"the folder holds {file_names}",
            do="give the folder that transformers' save_pretrained wrote, or a GGUF file",
        )
    config = read_json(file)
    if not isinstance(config, dict) or not config.get("model_type"):
        raise BadCheckpoint(
            "config.json names no model_type",
            where=str(file),
            why="without it nobody knows which architecture this is",
            do="use a checkpoint in the Hugging Face format (not a training framework's own)",
        )
    if mistyped := [f"{k} = {v!r}"[:80] for k, v in config.items() if not _is_typed(k, v)]:
        raise BadCheckpoint(
            f"config.json says {', '.join(mistyped[:4])}",
            where=str(file),
            why="model_type is a name, architectures are names, parts of a config are objects",
            do="restore the file, or correct it",
        )
    if too_small := [*_negative(config)]:
        raise BadCheckpoint(
            f"config.json says {', '.join(too_small[:4])}",
            where=str(file),
            why="a size or a number of parts is 1 at least",
            do="restore the file, or correct it",
        )
    if too_many := [*_too_many_labels(config)]:
        raise BadCheckpoint(
            f"config.json says {too_many[0]}",
            where=str(file),
            why=f"labels are named one by one: {MANY_LABELS} at most are read",
            do="restore the file, or correct it",
        )
    return config


def _is_typed(name: str, value: object) -> bool:
    """Returns whether an entry of a config has the type that transformers expects."""
    if name == "architectures":
        return value is None or (isinstance(value, list) and all(type(x) is str for x in value))
    if name == "model_type":
        return isinstance(value, (str, int))  # a number is an unknown type
    is_object = name == "auto_map" or name.endswith("_config")
    return not is_object or value is None or isinstance(value, dict)


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


def _negative(config: dict[str, Any], place: str = "") -> Iterator[str]:
    """Yields sizes below 0, also of nested configs; some configs write -1 for none."""
    for name, value in config.items():
        if isinstance(value, dict):
            yield from _negative(value, f"{place}{name}.")
        elif type(value) is int and value < (0 if name in SIZES else -1) and _is_size(name):
            yield f"{place}{name} = {value}"


def _too_many_labels(config: dict[str, Any], place: str = "") -> Iterator[str]:
    """Yields numbers of labels that would fill the memory with names, also of nested configs."""
    for name, value in config.items():
        if isinstance(value, dict):
            yield from _too_many_labels(value, f"{place}{name}.")
        elif name == "num_labels" and type(value) is int and value > MANY_LABELS:
            yield f"{place}{name} = {value}"[:80]


def _is_size(name: str) -> bool:
    return name in SIZES or name.endswith(("_size", "_dim")) or name.startswith("num_")


def check_layers(place: Path, config: dict[str, Any], stored: int) -> None:
    """Raises BadCheckpoint for many more layers than stored weights: building them takes minutes.

    Models that use a layer several times have fewer weights than layers, but not by far.
    """
    counts = {k: v for k, v in _layers(config) if v > max(MANY_LAYERS, stored)}
    if stored and counts:
        name, count = next(iter(counts.items()))
        raise BadCheckpoint(
            f"the weights are fewer than the layers: the config says {name} = {count}",
            where=str(place),
            why=f"there are {stored} weights: most layers have none",
            do="compare config.json with the weights: anyjax inspect FOLDER",
        )


def _layers(config: dict[str, Any], place: str = "") -> Iterator[tuple[str, int]]:
    """Yields the numbers of layers, also of nested configs."""
    for name, value in config.items():
        if isinstance(value, dict):
            yield from _layers(value, f"{place}{name}.")
        elif type(value) is int and (name in ("depth", "n_layer") or name.endswith("layers")):
            yield f"{place}{name}", value


def _weights(folder: Path, config: dict[str, Any], allow_pickle: bool) -> list[Path]:
    """Returns the weight files that transformers reads, in its order of preference."""
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
