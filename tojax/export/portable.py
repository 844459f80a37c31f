"""Programs in a SavedModel in a form of StableHLO that TensorFlow reads.

JAX writes a form that is four weeks old, TensorFlow is released a few times a year: its reader is
older. StableHLO itself writes its programs in the form of twelve weeks ago.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jax.extend.mlir.dialects import stablehlo
from jax.interpreters import mlir

FILE = "saved_model.pb"


def make_portable(folder: Path) -> None:
    """Rewrites the programs in a SavedModel's graphs."""
    from tensorflow.core.protobuf import saved_model_pb2

    proto = saved_model_pb2.SavedModel()
    proto.ParseFromString((folder / FILE).read_bytes())
    for node in _nodes(proto):
        if node.op == "XlaCallModule":
            node.attr["module"].s = older(node.attr["module"].s)
    (folder / FILE).write_bytes(proto.SerializeToString())


def older(program: bytes) -> bytes:
    """The same program in the form of twelve weeks before this JAX."""
    required = stablehlo.StablehloCompatibilityRequirement.WEEK_12
    version = stablehlo.get_version_from_compatibility_requirement(required)
    with mlir.make_ir_context() as context:
        module = stablehlo.deserialize_portable_artifact(context, program)
        return stablehlo.serialize_portable_artifact(module, version)


def _nodes(proto: Any) -> Iterator[Any]:
    for graph in (x.graph_def for x in proto.meta_graphs):
        yield from graph.node
        for function in graph.library.function:
            yield from function.node_def
