"""Programs of a SavedModel in a version of StableHLO that TensorFlow reads.

JAX writes a version that is four weeks old. TensorFlow is released a few times a year, so that its
reader is older, and does not tell its version. So a program is written in the oldest version that
can express it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jax.interpreters import mlir
from jax.interpreters.mlir import ir

from anyjax.private_names import need

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

_FEATURE = "to_savedmodel"
func: Any = need("jax.extend.mlir.dialects.func:", _FEATURE)
stablehlo: Any = need("jax.extend.mlir.dialects.stablehlo:", _FEATURE)

FILE = "saved_model.pb"
OLDEST = "1.0.0"  # the first version with long-term compatibility


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
    """Returns the same program in the oldest form that can express it.

    Versions: https://github.com/openxla/stablehlo/blob/main/docs/vhlo.md
    """
    required = stablehlo.StablehloCompatibilityRequirement.WEEK_12
    recent = stablehlo.get_version_from_compatibility_requirement(required)
    with mlir.make_ir_context() as context:
        module = stablehlo.deserialize_portable_artifact(context, program)
        without_composites(module.operation)
        with contextlib.suppress(ValueError), quiet(context):
            return stablehlo.serialize_portable_artifact(module, OLDEST)
        return stablehlo.serialize_portable_artifact(module, recent)


def without_composites(module: ir.Operation) -> None:
    """Replaces each composite by a call of its decomposition: TensorFlow's shape refinement does
    not look into composites.
    """
    composites: list[Any] = []

    def collect(op: ir.Operation) -> ir.WalkResult:
        if op.name == "stablehlo.composite":
            composites.append(op)
        return ir.WalkResult.ADVANCE

    module.walk(collect)
    for op in composites:
        with ir.InsertionPoint(op), op.location:
            types = [x.type for x in op.results]
            call = func.CallOp(types, op.attributes["decomposition"], [*op.operands])
        for old, new in zip(op.results, call.results):
            old.replace_all_uses_with(new)
        op.erase()


@contextlib.contextmanager
def quiet(context: ir.Context) -> Iterator[None]:
    """Keeps MLIR's diagnostics off the screen."""
    handler: Any = context.attach_diagnostic_handler(lambda diagnostic: True)
    try:
        yield
    finally:
        handler.detach()


def _nodes(proto: SavedModel) -> Iterator[NodeDef]:
    for graph in (x.graph_def for x in proto.meta_graphs):
        yield from graph.node
        for function in graph.library.function:
            yield from function.node_def
