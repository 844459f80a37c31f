"""A model as an ONNX file, by jax2onnx."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np

from anyjax.errors import (
    AnyjaxError,
    MissingDependency,
    MissingOps,
    NotWritten,
    Unsupported,
    WrongArguments,
)
from anyjax.export.flat import Call, call_of, check_outputs
from anyjax.export.plain import plain, primitives
from anyjax.jaxprs import jaxpr_as_fun
from anyjax.model import Model
from anyjax.takes_model import takes_model

LARGE = 2**31 - 2**20  # bytes: the limit of protobuf for one file


@takes_model
def to_onnx(
    model: Model,
    file: str | os.PathLike[str],
    *args: Any,
    shapes: Mapping[str, str] | None = None,
    constraints: Sequence[str] = (),
    **kwargs: Any,
) -> Path:
    """Writes the model as an ONNX file, with its weights in it, and runs that once to compare.

    Args:
      model: a Model of any framework, in evaluation mode.
      file: where to, such as "model.onnx"; weights above 2 GB go to "model.onnx.data" beside it.
      *args: an example of the call; inputs have the names of the arguments, outputs those
        of the fields.
      **kwargs: the same, by name.
      shapes: the arguments that may have other sizes, as for ``model.save``:
        ``{"input_ids": "batch, length"}``.
      constraints: what holds for these sizes.

    Returns:
      The file's path.

    Raises:
      MissingDependency: jax2onnx or onnxruntime is not installed.
      MissingOps: operators that jax2onnx does not know, all of them.
      Unsupported: jax2onnx cannot write one of them in this form, the file does not run, or
        computes something else; nothing is left behind.
      NotWritten: the disk is full.

    Example:
      >>> import numpy as np, tempfile, torch
      >>> x, file = np.ones((5, 3), np.float32), tempfile.mkdtemp() + "/linear.onnx"
      >>> model = anyjax.from_torch(torch.nn.Linear(3, 2))
      >>> path = anyjax.export.to_onnx(model, file, x)  # doctest: +SKIP
      >>> anyjax.export.run_onnx(path, {"input": x})["output"].shape  # doctest: +SKIP
      (5, 2)
    """
    onnx, converter = _packages()
    target = Path(file).expanduser()
    call = call_of(model, args, kwargs, shapes, constraints)
    proto = _proto(converter, call)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            written = Path(scratch) / target.name
            if proto.ByteSize() < LARGE:
                written.write_bytes(proto.SerializeToString())
            else:
                external = {"save_as_external_data": True, "location": f"{target.name}.data"}
                onnx.save_model(proto, written, **external)
            _compare(call, written)
            for path in sorted(Path(scratch).iterdir(), reverse=True):  # the weights first
                os.replace(path, target.parent / path.name)
    except AnyjaxError:
        raise
    except OSError as error:
        raise NotWritten.of(target, error) from error
    return target


def run_onnx(
    file: str | os.PathLike[str], inputs: Mapping[str, jax.typing.ArrayLike]
) -> dict[str, np.ndarray]:
    """Runs an ONNX file by onnxruntime on the CPU, and returns its outputs by name.

    Args:
      file: the file.
      inputs: arrays by the names of the file's inputs.

    Raises:
      MissingDependency: onnxruntime is not installed.
      WrongArguments: other names than the file's.

    Example:
      >>> anyjax.export.run_onnx("model.onnx", {"x": x})["logits"]  # doctest: +SKIP
    """
    _packages()
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # its errors are raised, too
    session = onnxruntime.InferenceSession(
        os.fspath(file), options, providers=["CPUExecutionProvider"]
    )
    input_names = [x.name for x in session.get_inputs()]
    if {*input_names} != {*inputs}:
        raise WrongArguments(
            f"inputs= holds {', '.join(inputs) or 'nothing'}",
            why=f"the file takes {', '.join(input_names) or 'nothing'}",
            do="give an array for each of these names",
        )
    arrays = {name: np.asarray(inputs[name]) for name in input_names}
    names = [x.name for x in session.get_outputs()]
    return dict(zip(names, session.run(names, arrays)))


def _packages() -> tuple[ModuleType, ModuleType]:
    """Imports (onnx, jax2onnx).

    Raises:
      MissingDependency: a package is not installed.
    """
    try:
        with _quiet():
            import jax2onnx
            import onnx
            import onnxruntime  # noqa: F401
    except ImportError as error:
        raise MissingDependency(
            f"ONNX files need the package {error.name}",
            why="jax2onnx writes them, and onnxruntime runs them to compare",
            do="pip install anyjax[onnx]",
        ) from error
    return onnx, jax2onnx


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silences warnings of jax2onnx about optional dependencies, and of the package that it writes
    with, of each intermediate value with an open size: the file needs no types of those.
    """
    levels = {log: log.level for log in map(logging.getLogger, ("jax2onnx", "onnx_ir"))}
    for log in levels:
        log.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for log, level in levels.items():
            log.setLevel(level)


@contextlib.contextmanager
def _restored() -> Iterator[None]:
    """Restores JAX's functions, which jax2onnx replaces while it traces: it leaves a ``jnp.cumsum``
    that takes no axis by position.
    """
    functions = [(module, dict(vars(module))) for module in (jax.numpy, jax.lax, jax.nn)]
    try:
        yield
    finally:
        for module, originals in functions:
            for name, value in originals.items():
                if vars(module).get(name) is not value:
                    setattr(module, name, value)


def _proto(converter: ModuleType, call: Call) -> Any:
    """Converts the call to ONNX's ``ModelProto``."""
    params, state = call.model.params, call.model.state
    closed = plain(lambda *arrays: call(params, state, *arrays), *call.specs)
    with _quiet(), _restored():
        _refuse_unknown(call, primitives(closed))
        try:
            return converter.to_onnx(
                jaxpr_as_fun(closed),
                call.specs,
                model_name=call.model.source.name,
                input_names=call.names,
                output_names=call.outputs,
            )
        except Exception as error:  # jax2onnx's plugins raise various errors
            raise Unsupported(
                f"{call.model.source.name} as ONNX",
                where="jax2onnx",
                why=f"{type(error).__name__}: " + " ".join(str(error).split())[:300],
                do="fix all sizes, or keep to model.save(folder)",
            ) from error


def _refuse_unknown(call: Call, used: set[str]) -> None:
    from jax2onnx.plugins import plugin_system

    plugin_system.import_all_plugins()
    if unknown := sorted(used - {*plugin_system.PLUGIN_REGISTRY}):
        raise MissingOps(
            f"{call.model.source.name} as ONNX: {', '.join(unknown)}",
            ops=tuple(unknown),
            why="jax2onnx does not know how to write these operators of JAX",
            do="keep to model.save(folder), or anyjax.export.to_savedmodel",
        )


def _compare(call: Call, file: Path) -> None:
    want = call.want(call.examples)
    try:
        got = run_onnx(file, dict(zip(call.names, call.examples)))
    except AnyjaxError:
        raise
    except Exception as error:  # onnxruntime's errors have no common base
        raise Unsupported(
            f"{call.model.source.name} as ONNX: onnxruntime does not run it",
            why=" ".join(str(error).split())[:300],
            do="keep to model.save(folder), or anyjax.export.to_savedmodel",
        ) from error
    check_outputs("ONNX", call, want, [got[name] for name in call.outputs])
