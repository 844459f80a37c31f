"""Picks the frontend by type; what ``model.save`` wrote needs none."""

from __future__ import annotations

import os
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from anyjax import saved
from anyjax.errors import Unsupported, WrongArguments
from anyjax.model import Model

# Files that tell what a folder is.
MARKS = {
    "saved_model.pb": "tensorflow",
    "saved_model.pbtxt": "tensorflow",
    "config.json": "hf",
    "model.json": "saved",
}


def convert(source: Any, *example_args: Any) -> Model:
    """Converts anything that a frontend knows to a Model; the type picks the frontend.

    Args:
      source: a torch module or function; a Keras model, a ``tf.function`` or ``tf.Module``; an ONNX
        ``ModelProto``; a ``jax.export.Exported`` or a StableHLO module; the folder of a checkpoint
        or a SavedModel, or a file of any of these; a folder that ``model.save`` wrote.
      *example_args: for frontends that need them; TensorFlow functions do.

    Returns:
      The Model that ``from_torch``, ``from_pretrained``, ``from_tensorflow``, ``from_onnx``,
      ``from_stablehlo`` or ``load`` gives.

    Raises:
      Unsupported: no frontend takes an object of this type.
      WrongArguments: a folder holds two models.

    Example:
      >>> import torch
      >>> anyjax.convert(torch.nn.ReLU()).source.name
      'ReLU'
    """
    import anyjax

    for frontend in entry_points(group="anyjax.frontends"):
        takes, make = frontend.load()
        if takes(source):
            return make(source, *example_args)
    kind = frontend_of(source)
    if kind == "tensorflow":
        return anyjax.from_tensorflow(source, *example_args)
    if kind == "onnx":
        return anyjax.from_onnx(source, *example_args)
    if kind == "stablehlo":
        return anyjax.from_stablehlo(source)
    if kind == "hf":
        return anyjax.from_pretrained(source)
    if kind == "saved":
        return anyjax.load(source)
    if kind == "torch":
        return anyjax.from_torch(source)
    raise Unsupported(
        f"no frontend takes a {type(source).__name__}",
        why="known are models and functions of torch and TensorFlow, ONNX models, StableHLO "
        "modules, folders and hub ids",
        do="declare a frontend of your own as an entry point in the group anyjax.frontends",
    )


def load(folder: str | os.PathLike[str], executables: bool | None = None) -> Model:
    """Returns a model that ``model.save`` wrote; needs JAX alone.

    Outputs of classes that JAX does not know come as dicts with attributes.

    Args:
      folder: that ``save`` wrote.
      executables: whether compiled programs in it are used. They are machine code, which can do
        anything: by default those that this user made on this kind of machine are; True trusts
        those of others.

    Raises:
      BadCheckpoint: the folder is none, or damaged, or for a newer JAX.
      Unsupported: it was saved for other platforms.

    Example:
      >>> import numpy as np, tempfile, torch
      >>> folder = tempfile.mkdtemp() + "/relu"
      >>> anyjax.from_torch(torch.nn.ReLU()).save(folder, np.ones(3, np.float32))
      >>> anyjax.load(folder)(np.array([-1, 0, 2], np.float32)).tolist()
      [0.0, 0.0, 2.0]
    """
    return Model(*saved.read(folder, executables))


def frontend_of(source: Any) -> str | None:
    """Returns the frontend that takes an object or a path, None if none does.

    Example:
      >>> frontend_of(b"ML"), frontend_of("model.keras"), frontend_of("owner/name"), frontend_of(3)
      ('stablehlo', 'tensorflow', 'hf', None)
    """
    if type(source).__name__ == "ModelProto":
        return "onnx"
    if isinstance(source, (bytes, bytearray)):
        # A ModelProto begins with its version; a flatbuffer with an offset, whose second byte is 0.
        is_proto = source[:1] == b"\x08" and source[1:2] != b"\x00"
        return "onnx" if is_proto else "stablehlo"
    if type(source).__name__ == "Exported":
        return "stablehlo"
    if isinstance(source, (str, os.PathLike)):
        return _of_path(source)
    torch, tensorflow = sys.modules.get("torch"), sys.modules.get("tensorflow")
    if torch is not None and isinstance(source, torch.nn.Module):
        return "torch"
    if tensorflow is not None and _is_tensorflow(source, tensorflow):
        return "tensorflow"
    return "torch" if torch is not None and callable(source) else None


def _of_path(source: str | os.PathLike[str]) -> str:
    """By what lies there; a hub id where nothing does."""
    if isinstance(source, str) and ("func.func" in source or source.lstrip().startswith("module")):
        return "stablehlo"
    path = Path(source).expanduser()
    if path.suffix in (".keras", ".h5", ".pb", ".pbtxt"):
        return "tensorflow"
    if path.suffix == ".onnx":
        return "onnx"
    if path.suffix in (".mlir", ".mlirbc", ".stablehlo", ".jax_export"):
        return "stablehlo"
    marks = {kind: name for name, kind in MARKS.items() if (path / name).exists()}
    if len(marks) > 1:
        raise WrongArguments(
            f"{path} holds {' and '.join(marks.values())}",
            why="each of them is a model",
            do="say which: anyjax.from_pretrained, anyjax.from_tensorflow or anyjax.load",
        )
    return next(iter(marks), "hf")


def _is_tensorflow(source: Any, tensorflow: Any) -> bool:
    keras = sys.modules.get("keras")
    if keras is not None and isinstance(source, keras.layers.Layer):
        return True
    return isinstance(source, tensorflow.Module) or hasattr(source, "get_concrete_function")
