"""Errors for models in other formats than checkpoints: they name the format and what reads it."""

from __future__ import annotations

from pathlib import Path

from anyjax.errors import AnyjaxError, BadCheckpoint, Unsupported

ORIGIN = "give what it was exported from: a checkpoint, a SavedModel, or a torch module"
# By suffix: (format, what to do)
UNREAD = {
    ".tflite": ("LiteRT", ORIGIN),
    ".pt2": ("torch.export", "give the module that was exported: anyjax.from_torch(module)"),
    ".mlpackage": ("Core ML", ORIGIN),
}
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".npz")
LOAD = "anyjax.load(folder), anyjax run, anyjax inspect and, with a loop, anyjax generate take it"


def error_of(path: Path) -> AnyjaxError | None:
    """Returns the error for a folder without config.json or another path; None for one that may be
    a checkpoint's.
    """
    return _of_folder(path) if path.is_dir() else _of_file(path)


def _of_file(file: Path) -> AnyjaxError | None:
    if file.suffix in UNREAD:
        return _unread_format(file)
    if file.suffix == ".onnx":
        return _onnx(file)
    if file.suffix in (".keras", ".h5") and file.is_file():
        return BadCheckpoint(
            f"{file.name} is a model of Keras, no checkpoint",
            where=str(file.absolute()),
            why="a checkpoint is a folder with a config.json",
            do="anyjax.from_tensorflow(file), anyjax run, inspect, explore and export take it",
        )
    if file.suffix in WEIGHTS and file.is_file():
        return BadCheckpoint(
            f"{file.name} is a file of weights alone",
            where=str(file.absolute()),
            why="what is computed with them is not in it",
            do="give the folder that holds it and config.json; or load it into a module in PyTorch "
            "and call anyjax.from_torch(module)",
        )
    return None


def _of_folder(folder: Path) -> AnyjaxError | None:
    if (folder / "model.json").is_file():
        return BadCheckpoint(
            f"{folder.name or folder} is a saved model, no checkpoint",
            where=str(folder.absolute()),
            why="model.save or anyjax export wrote it: compiled programs, without the architecture",
            do=f"{LOAD}; for anything else, another format too, give the checkpoint it came from",
        )
    if any((folder / name).is_file() for name in ("saved_model.pb", "saved_model.pbtxt")):
        return BadCheckpoint(
            f"{folder.name or folder} is TensorFlow's SavedModel, no checkpoint",
            where=str(folder.absolute()),
            why="a checkpoint has a config.json",
            do="anyjax.from_tensorflow(folder), anyjax run, inspect and export take it",
        )
    unread = sorted(x for x in folder.iterdir() if x.suffix in UNREAD)
    if unread:
        return _unread_format(unread[0])
    graphs = sorted(folder.glob("*.onnx"))
    return _onnx(graphs[0]) if graphs else None


def _onnx(file: Path) -> BadCheckpoint:
    return BadCheckpoint(
        f"{file.name} is an ONNX model, no checkpoint",
        where=str(file.absolute()),
        why="a checkpoint is a folder with a config.json",
        do="anyjax.from_onnx(file), anyjax run and anyjax inspect take it",
    )


def _unread_format(file: Path) -> Unsupported:
    kind, do = UNREAD[file.suffix]
    return Unsupported(
        f"{kind} files are not read yet",
        where=str(file.absolute()),
        why="anyjax reads checkpoints, GGUF files, SavedModels, .keras files and StableHLO",
        do=do,
    )
