"""SavedModel folders and Keras files; nothing of their Python code is run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import tensorflow as tf

from tojax.errors import BadCheckpoint, WrongArguments


def load(path: str | os.PathLike, signature: str | None = None) -> Any:
    """What a folder or file holds, restored by TensorFlow or Keras.

    Raises:
      BadCheckpoint: it cannot be read.
    """
    place = Path(path)
    if place.suffix in (".keras", ".h5"):
        import keras

        return _reading(lambda: keras.models.load_model(place, compile=False), place)
    if not (place / "saved_model.pb").exists() and not (place / "saved_model.pbtxt").exists():
        raise BadCheckpoint(
            f"{place} is no SavedModel",
            why="it has no saved_model.pb" if place.is_dir() else "there is no such folder",
            do="pass the folder that tf.saved_model.save or model.export wrote",
        )
    return _reading(lambda: tf.saved_model.load(os.fspath(place)), place)


def _reading(read, place: Path) -> Any:
    try:
        return read()
    except Exception as error:
        raise BadCheckpoint(
            f"{place} cannot be read",
            why=" ".join(str(error).split())[:300] or type(error).__name__,
            do="export the model again",
        ) from error


def choose(restored: Any, name: str | None) -> Any:
    """One function of a restored SavedModel: a signature by name, or the one that it serves."""
    signatures = dict(restored.signatures)
    if name is not None:
        found = signatures.get(name, getattr(restored, name, None))
        if found is None:
            raise WrongArguments(
                f"there is no signature {name!r}",
                why=f"the model has {', '.join(sorted(signatures)) or 'none'}",
                do="pass signature= with one of these names",
            )
        return found
    if callable(restored):
        return restored
    for usual in ("serving_default", *sorted(signatures)):
        if usual in signatures:
            return signatures[usual]
    raise WrongArguments(
        "the SavedModel has no signature",
        why="it was saved without one, and cannot be called itself",
        do="pass one of its functions: tojax.from_tensorflow(tf.saved_model.load(folder).function)",
    )


def call_of(function: Any) -> tuple[tuple, dict[str, Any]]:
    """Specs for the arguments of a call of a Keras model or of a restored function.

    Raises:
      WrongArguments: nothing tells what it is called with.
    """
    if (inputs := getattr(function, "input", None)) is not None:
        spec = lambda x: tf.TensorSpec(x.shape, x.dtype)
        return (tf.nest.map_structure(spec, inputs),), {}
    if hasattr(function, "structured_input_signature"):
        return function.structured_input_signature
    restored = vars(type(function)).get("__call__", function)  # of a restored object
    traced = getattr(restored, "concrete_functions", ())
    if traced:
        return traced[0].structured_input_signature
    raise WrongArguments(
        "it is not known what the model is called with",
        why="it was saved without a traced function",
        do="export it with a signature: model.export(folder)",
    )
