"""A StableHLO module as the source of a Model."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from anyjax import trees
from anyjax.calls.written_attention import evaluated
from anyjax.dtypes import canonical
from anyjax.errors import BadCheckpoint, Unsupported, WrongArguments
from anyjax.model import Model
from anyjax.numerics.conditions import enforced
from anyjax.source import SourceBase
from anyjax.stablehlo.core.region import Region
from anyjax.stablehlo.core.types import Type
from anyjax.stablehlo.engine.evaluate import Run
from anyjax.stablehlo.engine.parse import parse


@dataclass(frozen=True, eq=False)
class StableHLOSource(SourceBase):
    """Evaluates a module; ``unpack`` and ``pack`` convert between a call and its flat arrays."""

    run: Run
    unpack: Callable[[tuple, dict], list[Any]]
    pack: Callable[[list[Any]], Any]
    signature: inspect.Signature
    platforms: tuple[str, ...] = ()
    framework = "stablehlo"
    training = False
    module = None
    unpicklable = "its operations are objects of MLIR"

    def __eq__(self, other):
        return isinstance(other, StableHLOSource) and self.run is other.run

    def __hash__(self):
        return id(self.run)

    @property
    def name(self) -> str:
        return self.run.module.name

    def in_mode(self, training: bool) -> StableHLOSource:
        """Returns the same module.

        Raises:
          Unsupported: a module has no training mode.
        """
        if training:
            raise Unsupported(
                f"{self.name} has no training mode",
                why="a StableHLO module is one program",
                do="export the model in training mode",
            )
        return self

    def __call__(self, params, state, args, kwargs, rng=None) -> tuple[Any, trees.Written]:
        """Evaluates the module's main function."""
        main = self.run.module.functions["main"]
        places = self.run.module.globals.get("main", {})
        kinds = [kind for i, kind in enumerate(main.types) if i not in places]
        flat = self.unpack(args, kwargs)
        values = [_checked(i, x, kind) for i, (x, kind) in enumerate(zip(flat, kinds))]
        if len(flat) != len(kinds):
            raise WrongArguments(
                f"{len(flat)} arrays are given, {len(kinds)} wanted",
                why=f"the module is {self.name}{self.signature}",
                do="give its arguments",
            )
        for i, name in sorted(places.items()):
            values.insert(i, self._global(name))

        written = trees.Written({}, set())

        def evaluate() -> tuple[list[Any], list[jax.Array]]:
            run = Run(self.run.module, checked=True)
            flat = run.function("main", values)
            written.stepped |= run.checks.stepped
            return [jax.tree.map(jnp.asarray, x) for x in flat], [*run.checks]

        operations = (x for f in self.run.module.functions.values() for x in f.operations)
        attends = any(x.name == "stablehlo.exponential" for x in operations)
        out, checks = evaluated(evaluate, values) if attends else evaluate()
        out, written.holds = enforced(self.pack(out), checks)
        return out, written

    def _global(self, name: str) -> np.ndarray:
        """Returns an argument that no caller passes: the index of this platform in the module's."""
        if name != "_platform_index":
            raise Unsupported(f"a module that asks for {name}", do="export it again")
        backend = jax.default_backend()
        names = {"gpu": ("cuda", "rocm")}.get(backend, (backend,))
        places = [i for i, platform in enumerate(self.platforms) if platform in names]
        return np.array(places[0] if places else 0, np.int32)

    def write_back(self, params, state) -> Any:
        """Raises Unsupported: there is nothing to write to."""
        raise Unsupported(
            "a StableHLO module cannot be written back",
            why="it is a program",
            do="keep model.params, or save the model: model.save(folder)",
        )


def _checked(i: int, value: object, kind: Type | tuple) -> Any:
    """Checks one argument for the shape and dtype of the module."""
    if isinstance(kind, tuple) and not isinstance(kind, Type):
        return _checked_tuple(i, value, kind)
    if isinstance(value, trees.Constant):
        value = value.array
    array = value if trees.is_array(value) else np.asarray(value, kind.dtype)
    fits = len(array.shape) == len(kind.shape) and all(
        n is None or n == m for n, m in zip(kind.shape, array.shape)
    )
    if not fits or canonical(array.dtype) != kind.dtype:
        raise WrongArguments(
            f"argument {i} is {array.dtype}{list(array.shape)}",
            why=f"the module takes {kind.dtype}{[n or '?' for n in kind.shape]}",
            do="give an array of that shape and dtype",
        )
    return jnp.asarray(array)


def _checked_tuple(i: int, value: object, kinds: tuple) -> tuple:
    if not isinstance(value, (tuple, list)) or len(value) != len(kinds):
        raise WrongArguments(
            f"argument {i} is no tuple of {len(kinds)}",
            why="the module takes one",
            do="give a tuple of arrays",
        )
    return tuple(_checked(i, x, kind) for x, kind in zip(value, kinds))


def from_stablehlo(source: export.Exported | bytes | bytearray | str | os.PathLike[str]) -> Model:
    """Converts a StableHLO module to a pure JAX function, differentiable and without MLIR in it.

    Args:
      source: a ``jax.export.Exported``, its serialization, a portable artifact, MLIR bytecode or
        text, an HLO proto, or a file of one of these.

    Returns:
      A Model without params or state; called with the arguments that were exported, or, for a bare
      module, with its arrays by position.

    Raises:
      BadCheckpoint: it is none of these, or damaged.
      MissingOps: it has operations or custom calls that nothing serves.

    Example:
      >>> import jax, jax.numpy as jnp, numpy as np
      >>> exported = jax.export.export(jax.jit(jnp.sin))(jax.ShapeDtypeStruct((), np.float32))
      >>> model = anyjax.from_stablehlo(exported.serialize())
      >>> jax.grad(lambda x: model.apply({}, x))(0.0).item()
      1.0
    """
    if isinstance(source, (str, os.PathLike)) and not _is_text(source):
        source = _read_bytes(Path(source).expanduser())
    if isinstance(source, (bytes, bytearray)):
        source = _exported(bytes(source)) or source
    if isinstance(source, export.Exported):
        return _of_exported(source)
    if not isinstance(source, (str, bytes, os.PathLike)):
        raise BadCheckpoint(
            f"a {type(source).__name__} is no StableHLO module",
            why="known are an Exported, artifacts, MLIR and HLO protos, as bytes, text or files",
            do="export the function: jax.export.export(jax.jit(function))(*specs)",
        )
    run = Run(parse(os.fspath(source)))
    main = _main(run)
    names = [f"x{i}" for i in range(len(main.types) - len(run.module.globals.get("main", {})))]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(n, kind) for n in names])

    def unpack(args, kwargs):
        try:
            return [*signature.bind_partial(*args, **kwargs).arguments.values()]
        except TypeError as error:
            raise WrongArguments(
                str(error), why=f"the module is called as {signature}", do="give its arguments"
            ) from error

    pack = lambda out: out[0] if len(out) == 1 else tuple(out)
    return Model({}, {}, StableHLOSource(run, unpack, pack, signature))


def _of_exported(exported: Any) -> Model:
    """Makes a model of an ``Exported``, called as the exported function."""
    run = Run(parse(exported.mlir_module_serialized))
    _main(run)
    used_places = exported.module_kept_var_idx
    signature = inspect.signature(lambda *args, **kwargs: None)

    def unpack(args, kwargs):
        leaves, structure = jax.tree.flatten((args, kwargs))
        if structure != exported.in_tree:
            raise WrongArguments(
                "the arguments have another structure than the exported function's",
                why=f"it takes {exported.in_tree}",
                do="give them as the function was exported",
            )
        return [leaves[i] for i in used_places]

    pack = lambda out: jax.tree.unflatten(exported.out_tree, out)
    source = StableHLOSource(run, unpack, pack, signature, tuple(exported.platforms))
    return Model({}, {}, source)


def _main(run: Run) -> Region:
    functions = run.module.functions
    if "main" not in functions:
        if len(functions) != 1:
            raise BadCheckpoint(
                "the module has no main function",
                why=f"its functions are {', '.join(functions) or 'none'}",
                do="name the one to call main",
            )
        functions["main"] = next(iter(functions.values()))
        run.module.globals["main"] = next(iter(run.module.globals.values()), {})
    return functions["main"]


def _is_text(source: str | os.PathLike[str]) -> bool:
    return isinstance(source, str) and ("module" in source or "func.func" in source)


def _read_bytes(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():
            raise OSError("it is a folder, a pipe or a device")
        return path.read_bytes()
    except OSError as error:
        raise BadCheckpoint(
            f"{path} cannot be read", why=str(error), do="pass the path of a module"
        ) from error


def _exported(data: bytes) -> export.Exported | None:
    """Deserializes an ``Exported``; returns None if the bytes are something else."""
    if data[:4] == b"ML\xefR":
        return None
    try:
        return export.deserialize(bytearray(data))
    except Exception:  # flatbuffers raises many kinds of errors
        return None
