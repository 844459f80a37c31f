"""SavedModels of TensorFlow 1: a ``MetaGraphDef`` with signatures, and variables beside it.

Nothing is run: the graph is read as a GraphDef, its variables from the checkpoint by their names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from google.protobuf.message import DecodeError
from tensorflow.core.framework.variable_pb2 import VariableDef
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from anyjax.errors import BadCheckpoint, Unsupported, WrongArguments
from anyjax.tensorflow.engine.frozen import Weight, of_tensors
from anyjax.tensorflow.engine.functions import Function
from anyjax.tensorflow.state.references import VARIABLES

USUAL = ("serving_default", "default")


def read_proto(folder: Path) -> SavedModel:
    """Reads the proto of a SavedModel.

    Raises:
      BadCheckpoint: it is damaged.
    """
    binary, proto = folder / "saved_model.pb", SavedModel()
    try:
        if binary.exists():
            proto.ParseFromString(binary.read_bytes())
        else:
            text_format.Parse((folder / "saved_model.pbtxt").read_text("utf-8"), proto)
    except (OSError, DecodeError, text_format.ParseError, UnicodeDecodeError) as error:
        raise _damaged(folder, " ".join(str(error).split())) from error
    if not proto.meta_graphs:
        raise _damaged(folder, "it holds no graph")
    return proto


def _damaged(folder: Path, why: str) -> BadCheckpoint:
    return BadCheckpoint(
        f"saved_model.pb of {folder} cannot be read",
        why=f"the file is damaged or was cut short: {why}",
        do="export or copy the model again",
    )


def is_old(proto: SavedModel) -> bool:
    """Returns whether TensorFlow 1 wrote it: there are no objects, only a graph."""
    return not any(len(x.object_graph_def.nodes) for x in proto.meta_graphs)


def function_of(folder: Path, proto: SavedModel, signature: str | None) -> Function:
    """Makes a function of a signature of a SavedModel of TensorFlow 1, with its variables by name.

    Raises:
      WrongArguments: there is no such signature.
      BadCheckpoint: its variables cannot be read.
    """
    meta = _serving(proto)
    name, chosen = _signature(meta, signature)
    feeds = {key: _plain(chosen.inputs[key], key) for key in sorted(chosen.inputs)}
    fetches = {key: _plain(chosen.outputs[key], key) for key in sorted(chosen.outputs)}
    variables = dict(_variables(folder, meta)) if _has_variables(meta) else {}
    function = of_tensors(meta.graph_def, feeds, fetches, variables, name)
    function.owner = folder
    return function


def _serving(proto: SavedModel) -> Any:
    """Returns the graph for serving: with the tag "serve", else without tags (TF-Hub's modules)."""
    by_tags = {frozenset(x.meta_info_def.tags): x for x in proto.meta_graphs}
    serving = [x for tags, x in by_tags.items() if "serve" in tags and "train" not in tags]
    return next(iter(serving), by_tags.get(frozenset(), proto.meta_graphs[0]))


def _signature(meta: Any, name: str | None) -> tuple[str, Any]:
    signatures = {k: v for k, v in meta.signature_def.items() if v.outputs}
    name = name or usual_of(signatures)
    if name is None or name not in signatures:
        raise no_signature(name, signatures)
    return name, signatures[name]


def usual_of(names: Iterable[str]) -> str | None:
    """Returns the signature that is served where none is named, None if that is not clear."""
    names = [*names]
    return next((x for x in USUAL if x in names), names[0] if len(names) == 1 else None)


def no_signature(name: str | None, names: Iterable[str]) -> WrongArguments:
    """Returns the error for a signature that is not there, or is not named among several."""
    names = sorted(names)
    return WrongArguments(
        f"there is no signature {name!r}" if name else "the SavedModel has several signatures",
        why=f"the model has {', '.join(names) or 'none'}",
        do="pass signature= with one of these names"
        + (f": anyjax.from_tensorflow(folder, signature={names[0]!r})" if names else ""),
    )


def _plain(info: Any, key: str) -> str:
    """Returns the name of a dense tensor."""
    if info.WhichOneof("encoding") != "name":
        raise Unsupported(
            f"{key!r} of the signature is a sparse or composite tensor",
            why="JAX has dense arrays",
            do="export a signature of dense tensors",
        )
    return info.name


def _has_variables(meta: Any) -> bool:
    return any(node.op in VARIABLES for node in meta.graph_def.node)


def _variables(folder: Path, meta: Any) -> Iterator[tuple[str, Weight]]:
    """Yields the variables that have a value in the checkpoint, by the names of their handles."""
    try:
        values = tf.train.load_checkpoint(str(folder / "variables" / "variables"))
        shapes = values.get_variable_to_shape_map()
    except (tf.errors.OpError, ValueError, IndexError) as error:
        raise _lost(folder, error) from error
    nodes = {node.name: node for node in meta.graph_def.node if node.op in VARIABLES}
    descriptions = dict(_described(meta))
    trainable = {d.variable_name for _, d in _described(meta, "trainable_variables")}
    for name, node in nodes.items():
        described = descriptions.get(name)
        key: str = name
        cut: Any = ...
        if described is not None and described.save_slice_info_def.full_name:
            shard = described.save_slice_info_def
            key = shard.full_name
            cut = tuple(slice(o, o + n) for o, n in zip(shard.var_offset, shard.var_shape))
        if key not in shapes:
            continue
        try:
            value = np.asarray(values.get_tensor(key))[cut]
        except (tf.errors.OpError, ValueError, IndexError) as error:
            raise _lost(folder, error) from error
        learned = f"{name}:0" in trainable if descriptions else value.dtype.kind == "f"
        yield node.attr["shared_name"].s.decode() or name, Weight(value, learned)


def _described(meta: Any, collection: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the definitions of variables in the graph's collections, by names of nodes."""
    names = [collection] if collection else ["variables", "trainable_variables", "local_variables"]
    for name in names:
        entries = meta.collection_def.get(name)
        for text in entries.bytes_list.value if entries is not None else ():
            variable = VariableDef.FromString(text)
            yield variable.variable_name.partition(":")[0], variable


def _lost(folder: Path, error: Exception) -> BadCheckpoint:
    return BadCheckpoint(
        f"the variables of {folder} cannot be read",
        why=" ".join(str(error).split())[:300],
        do="export or copy the model again, with its folder `variables`",
    )
