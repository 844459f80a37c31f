"""SavedModel folders and Keras files; none of their Python code is run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf import text_format
from google.protobuf.message import DecodeError

from anyjax.errors import BadCheckpoint, WrongArguments
from anyjax.tensorflow.engine import files, metagraph
from anyjax.tensorflow.engine.functions import restored_calls
from anyjax.typing import PyTree

FILES = ("saved_model.pb", "saved_model.pbtxt")
TRUSTED = (
    "save the model again; if you trust code in it, "
    "anyjax.from_tensorflow(keras.models.load_model(file, safe_mode=False))"
)


def source_of(path: str | os.PathLike[str], signature: str | None) -> Any:
    """Reads a GraphDef, a signature of a SavedModel of TensorFlow 1, or what ``load`` restores.

    Raises:
      BadCheckpoint: it cannot be read.
      WrongArguments: there is no such signature.
    """
    place = Path(path).expanduser()
    graph = place.suffix in (".pb", ".pbtxt") and place.stem != "saved_model"
    if graph and place.is_file():
        return read_graph(place)
    folder = place.parent if place.is_file() and place.stem == "saved_model" else place
    if os.fspath(path) and any((folder / x).exists() for x in FILES):
        files.check_regular(*(folder / x for x in FILES), *folder.glob("variables/*"))
        proto = metagraph.read_proto(folder)
        if metagraph.is_old(proto):
            return metagraph.function_of(folder, proto, signature)
        _check_variables(folder, proto)
        path = folder
    return load(path)


def load(path: str | os.PathLike[str]) -> Any:
    """Restores a folder or file by TensorFlow or Keras.

    Raises:
      BadCheckpoint: it cannot be read.
    """
    place = Path(path).expanduser()
    if not os.fspath(path):
        raise BadCheckpoint(
            "the path is empty",
            why="it names no folder and no file",
            do="pass the folder of a SavedModel",
        )
    if place.suffix in (".keras", ".h5"):
        import keras

        files.check_archive(place)
        return _restored(lambda: keras.models.load_model(place, compile=False), place, TRUSTED)
    if not any((place / x).exists() for x in FILES):
        raise _no_saved_model(place)
    return _restored(lambda: tf.saved_model.load(os.fspath(place)), place)


def read_graph(place: Path) -> Any:
    """Reads a ``GraphDef`` from its file, binary or text.

    Raises:
      BadCheckpoint: it is no GraphDef.
    """
    graph = tf.compat.v1.GraphDef()
    try:
        if place.suffix == ".pb":
            graph.ParseFromString(place.read_bytes())
        else:
            text_format.Parse(place.read_text("utf-8"), graph)
    except (DecodeError, text_format.ParseError, UnicodeDecodeError) as error:
        raise BadCheckpoint(
            f"{place} is no GraphDef",
            why=" ".join(str(error).split())[:300],
            do="pass a frozen graph, or the folder of a SavedModel",
        ) from error
    if not graph.node:
        raise BadCheckpoint(
            f"{place} is no GraphDef", why="it has no nodes", do="export the graph again"
        )
    return graph


def _no_saved_model(place: Path) -> BadCheckpoint:
    if (place / "config.json").exists():
        return BadCheckpoint(
            f"{place} is a Hugging Face checkpoint, no SavedModel",
            why="it has a config.json and no saved_model.pb",
            do="call anyjax.from_pretrained(folder)",
        )
    why = "it has no saved_model.pb" if place.is_dir() else "there is no such file or folder"
    if place.is_file():
        why = "it is a file that is none of .pb, .pbtxt, .keras and .h5"
    return BadCheckpoint(
        f"{place} is no SavedModel",
        why=why,
        do="pass the folder that tf.saved_model.save or model.export wrote, or a frozen graph",
    )


def _check_variables(place: Path, proto: Any) -> None:
    """Raises BadCheckpoint if a model has variables and no file of their values."""
    graphs = (x.object_graph_def.nodes for x in proto.meta_graphs)
    if not any(n.WhichOneof("kind") == "variable" for nodes in graphs for n in nodes):
        return
    if not (place / "variables" / "variables.index").exists():
        raise BadCheckpoint(
            f"{place} has no variables/variables.index",
            why="the model has variables, and their values are not there",
            do="copy the whole folder, with its folder `variables`",
        )


def _restored(
    restore: Callable[[], object], place: Path, do: str = "export the model again"
) -> Any:
    """Returns ``restore()``, or raises BadCheckpoint."""
    try:
        return restore()
    except Exception as error:
        raise BadCheckpoint(
            f"{place} cannot be read",
            why=" ".join(str(error).split())[:300] or type(error).__name__,
            do=do,
        ) from error


def choose(restored: PyTree, name: str | None) -> Any:
    """Chooses a function of a restored SavedModel: a signature by name, or the one it serves."""
    try:
        signatures = dict(restored.signatures)
    except TypeError as error:
        raise BadCheckpoint(
            "the SavedModel's signatures are something else",
            why=str(error),
            do="export the model again",
        ) from error
    usual = name or metagraph.usual_of(signatures)
    if usual in signatures and (name is not None or not callable(restored)):
        return signatures[usual]
    if name is None and callable(restored):
        return restored
    names = functions_of(restored)
    usual = usual or (names[0] if len(names) == 1 and not signatures else None)
    if usual in names:
        return function_at(restored, usual)
    if name is not None or len(signatures) > 1:
        raise metagraph.no_signature(name, {*signatures, *names})
    raise WrongArguments(
        "the SavedModel has no signature",
        why="it was saved without one, and cannot be called itself; "
        f"functions in it are {', '.join(names) or 'none'}",
        do=f"pass the name of one: anyjax.from_tensorflow(folder, signature={names[0]!r})"
        if names
        else "call its tf.function once before tf.saved_model.save, which saves graphs of calls",
    )


def functions_of(restored: PyTree) -> list[str]:
    """Returns the names of a restored object's functions that have a graph, by dotted path."""
    return sorted(name for name, x in _members(restored) if getattr(x, "concrete_functions", ()))


def _members(root: PyTree) -> Iterator[tuple[str, Any]]:
    """Yields the objects that a restored one holds, each under its first path."""
    seen, pending = {id(root)}, [("", root)]
    while pending:
        path, value = pending.pop(0)
        if isinstance(value, (list, tuple)):
            items = [(str(i), x) for i, x in enumerate(value)]
        else:
            items = [(k, getattr(value, k, None)) for k in dir(value) if k[0] != "_"]
        for name, item in items:
            if id(item) in seen:
                continue
            seen.add(id(item))
            yield f"{path}{name}", item
            if isinstance(item, (list, tuple, tf.__internal__.tracking.AutoTrackable)):
                pending.append((f"{path}{name}.", item))


def function_at(restored: PyTree, path: str) -> Any:
    """Returns a function by its dotted path."""
    for name in path.split("."):
        restored = restored[int(name)] if name.isdigit() else getattr(restored, name)
    return restored


def call_of(function: object) -> tuple[tuple, dict[str, Any]]:
    """Returns specs for the arguments of a Keras model or of a restored function.

    Raises:
      WrongArguments: its arguments are unknown.
    """
    inputs = getattr(function, "input", None)
    if inputs is None and len(symbols := getattr(function, "inputs", None) or []) == 1:
        inputs = symbols[0]  # of a Sequential that was never called
    if inputs is not None:
        spec = lambda x: tf.TensorSpec(x.shape, x.dtype)
        return (tf.nest.map_structure(spec, inputs),), {}
    if hasattr(function, "structured_input_signature"):
        return function.structured_input_signature
    if traced := restored_calls(function):
        return traced[0].structured_input_signature
    raise WrongArguments(
        "it is not known what the model is called with",
        why="it was saved without a traced function",
        do="export it with a signature: model.export(folder)",
    )
