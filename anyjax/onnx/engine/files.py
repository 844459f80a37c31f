"""ONNX files, bytes and protos, with the external data of files."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx import defs, version_converter
from onnx.external_data_helper import ExternalDataInfo, load_external_data_for_model

from anyjax.errors import BadCheckpoint, Unsupported
from anyjax.files import refuse_pointer

OLDEST = 7  # before it operators broadcast by an attribute


def read(source: onnx.ModelProto | bytes | str | os.PathLike[str]) -> onnx.ModelProto:
    """Returns the model of a file, bytes or a proto, in an opset that has schemas.

    Raises:
      BadCheckpoint: it is damaged, or its external data is missing or lies outside of its folder.
      Unsupported: an opset is newer than the package onnx.
    """
    if isinstance(source, onnx.ModelProto):
        model = source
    elif isinstance(source, (bytes, bytearray, memoryview)):
        model = _parsed(bytes(source), "the bytes")
    else:
        path = Path(source).expanduser()
        refuse_pointer(path)
        try:
            model = _parsed(path.read_bytes(), str(path))
        except OSError as error:
            raise BadCheckpoint(
                f"{path} cannot be read",
                where=str(path.absolute()),
                why=str(error),
                do="pass the path of an ONNX file",
            ) from error
        _read_external_data(model, path)
    return _in_an_opset(model)


def _parsed(data: bytes, name: str) -> onnx.ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
        reason = "" if model.HasField("graph") and model.ir_version else "it holds no graph"
    except (DecodeError, RuntimeError, ValueError) as error:
        reason = str(error)
    if reason:
        raise BadCheckpoint(
            f"{name} is no ONNX model",
            where=f"{len(data):,} bytes",
            why=reason,
            do="export or download the model again",
        )
    return model


def _read_external_data(model: onnx.ModelProto, path: Path) -> None:
    """Reads tensors that lie in other files of the same folder."""
    try:
        load_external_data_for_model(model, str(path.parent))
    except (OSError, ValueError, RuntimeError, onnx.checker.ValidationError) as error:
        raise BadCheckpoint(
            f"the external data of {path} cannot be read",
            why=" ".join(str(error).split())[:300],
            do=f"put all files of the model into {path.parent}",
        ) from error


def refuse_external(tensor: onnx.TensorProto) -> None:
    """Raises BadCheckpoint for a tensor whose values are in another file, which was not read."""
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        raise BadCheckpoint(
            f"the values of {tensor.name!r} are in the file {ExternalDataInfo(tensor).location!r}",
            why="bytes and protos have no folder to look for it in",
            do="pass the path of the model, or read it with onnx.load(path)",
        )


def _in_an_opset(model: onnx.ModelProto) -> onnx.ModelProto:
    opsets = {x.domain: x.version for x in model.opset_import}
    opset = opsets.get("", opsets.get("ai.onnx", OLDEST))
    newest = defs.onnx_opset_version()
    if opset > newest:
        raise Unsupported(
            f"opset {opset}",
            why=f"onnx {onnx.__version__} knows opsets up to {newest}",
            do="pip install --upgrade onnx",
        )
    if opset >= OLDEST:
        return model
    try:
        return version_converter.convert_version(model, OLDEST)
    except Exception as error:  # the converter's errors have no class of their own
        reason = " ".join(str(error).split())[:200]
        raise Unsupported(
            f"opset {opset}",
            why=f"onnx cannot convert the model to opset {OLDEST}: {reason}",
            do="export the model in a newer opset",
        ) from error
