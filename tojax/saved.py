"""A model on disk that runs without its source framework: jax.export programs beside safetensors.

A folder holds ``model.json`` (names, calls and their structures), ``params.safetensors``,
``state.safetensors`` and one serialized program per kind of call. Programs are differentiable once
and run on CPU, CUDA and TPU.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError
from safetensors.flax import load_file, save_file

from tojax import processes, trees
from tojax.dtypes import fitting
from tojax.errors import BadCheckpoint, DataDependent, Unsupported, WrongArguments
from tojax.program import Kept

PLATFORMS = ("cpu", "cuda", "tpu")
FORMAT = 2


class Output(dict):
    """An output whose class is not at hand: its fields as items and as attributes.

    Example:
      >>> Output(logits=1).logits
      1
    """

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


jax.tree_util.register_pytree_node(
    Output, lambda o: (list(o.values()), tuple(o)), lambda k, v: Output(zip(k, v))
)


def describe_call(leaves: list[Any], names: list[str]) -> dict[str, Any]:
    """Names of the arguments with "dtype[shape]" for arrays and the value for everything else."""
    said: dict[str, Any] = {}
    for name, leaf in zip(names, leaves):
        if trees.is_array(leaf):
            said[name] = f"{np.dtype(jax.dtypes.canonicalize_dtype(leaf.dtype))}{list(leaf.shape)}"
        elif isinstance(leaf, trees.PLAIN):
            said[name] = leaf
        else:
            raise Unsupported(
                f"the argument {name} is a {type(leaf).__name__}",
                why="it cannot be stored",
                do="leave it out",
            )
    return said


@dataclass(frozen=True, eq=False)
class SavedSource:
    """Programs by kind of call; the training mode is the one they were saved in."""

    framework: str
    name: str
    positional: list[str]
    training: tuple[bool, ...]
    calls: list[dict[str, Any]]
    programs: list[Any] = field(repr=False)
    kept: Kept = field(default_factory=Kept, repr=False)

    module = None

    @property
    def signature(self) -> inspect.Signature:
        """The arguments that may be given by position."""
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature([inspect.Parameter(n, kind) for n in self.positional])

    def as_array(self, leaf: Any) -> Any:
        """Inputs are arrays already."""
        return fitting(leaf) if isinstance(leaf, np.ndarray) else leaf

    def in_mode(self, training: bool) -> SavedSource:
        """The same, if it was saved in this mode."""
        if any(t != training for t in self.training):
            raise Unsupported(
                "a saved model has one mode",
                why="its programs are compiled",
                do="save the other mode, too",
            )
        return self

    def write_back(self, params, state):
        """There is no module."""
        raise Unsupported(
            "a saved model has no torch module",
            why="it runs without torch",
            do="keep the checkpoint it came from",
        )

    def __call__(self, params, state, args, kwargs, rng=None):
        """Runs the program for this kind of call."""
        leaves = jax.tree.leaves((args, kwargs))
        asked = describe_call(leaves, trees.names(args, kwargs, self.positional))
        for call, program in zip(self.calls, self.programs):
            if call["inputs"] == asked:
                _check_known(call.get("known", {}), state)
                arrays = [x for x in leaves if trees.is_array(x)]
                key = None if rng is None else jax.random.key_data(rng)
                flat, written = program.call(dict(params), dict(state), arrays, key)
                return _join(call["output"], flat), written
        raise WrongArguments(
            f"no program was saved for {json.dumps(asked)}",
            why="a saved model serves the calls it was saved with: "
            + "; ".join(json.dumps(c["inputs"]) for c in self.calls),
            do="save it again with an example of this call: model.save(folder, *args, **kwargs)",
        )


def save(source, params, state, folder: str | os.PathLike, calls: list[tuple]) -> None:
    """Writes the folder; it appears whole or not at all. Of several processes that hold parts of
    the arrays all must call this, and the first one writes.

    ``calls`` holds (args, kwargs, rng) with arrays or ``jax.ShapeDtypeStruct``.
    """
    shared = not all(map(processes.is_local, (*params.values(), *state.values())))
    if (found := processes.collected(params, state)) is not None:
        _write(source, *found, folder, calls)
    if shared:
        processes.gathered([0])  # it is there when this returns


def _write(source, params, state, folder: str | os.PathLike, calls: list[tuple]) -> None:
    with whole(folder, "model.json") as scratch:
        described = []
        for i, (args, kwargs, rng) in enumerate(calls):
            told, program = _export(source, params, state, args, kwargs, rng)
            (scratch / f"call-{i}.jax").write_bytes(program)
            described.append(told)
        save_file(dict(params), scratch / "params.safetensors")
        save_file(dict(state), scratch / "state.safetensors")
        modes = source.training  # one for each submodule, or one
        training = list(modes) if isinstance(modes, tuple) else [modes]
        about = {
            "format": FORMAT,
            "sha256": {file.name: _digest(file) for file in sorted(scratch.iterdir())},
            "name": source.name,
            "framework": source.framework,
            "positional": source.positional,
        }
        (scratch / "model.json").write_text(
            json.dumps(about | {"training": training, "calls": described}, indent=1)
        )


@contextlib.contextmanager
def whole(folder: str | os.PathLike, mark: str) -> Iterator[Path]:
    """A scratch folder that takes the place of ``folder`` when all is written, and not before.

    Raises:
      WrongArguments: ``folder`` holds something else than an earlier save, which has a file
        ``mark``.
    """
    target = Path(folder)
    if target.is_file() or (
        target.exists() and not (target / mark).exists() and any(target.iterdir())
    ):
        raise WrongArguments(
            f"{target} holds something else", do="give a new folder, or one that save wrote"
        )
    scratch, old = (
        target.parent / f".{target.name}-{uuid.uuid4().hex[:8]}-{end}" for end in ("new", "old")
    )
    scratch.mkdir(parents=True)
    try:
        yield scratch
        if target.exists():
            target.rename(old)
        scratch.rename(target)
    finally:
        if old.exists() and not target.exists():  # interrupted between the two
            old.rename(target)
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _check_files(folder: Path, about: dict[str, Any]) -> None:
    """Raises where the folder is of another format, or a file is not the one that was saved."""
    if about["format"] != FORMAT:
        raise BadCheckpoint(
            f"{folder} has format {about['format']}, this tojax reads format {FORMAT}",
            why="another version of tojax saved it",
            do="save it again with this version, or load it with the one that saved it",
        )
    for name, digest in about["sha256"].items():
        if _digest(folder / name) != digest:
            raise BadCheckpoint(
                f"{folder / name} is damaged",
                why="its sha256 is not the one that model.json holds",
                do="copy the folder again, or save the model again",
            )


def _export(source, params, state, args, kwargs, rng, known=None) -> tuple[dict[str, Any], bytes]:
    """(what is said of a call, its program); ``known`` are entries of the state as constants."""
    known = known or {}
    trees.register((args, kwargs))
    leaves, structure = jax.tree.flatten((args, kwargs))
    leaves = [source.as_array(x) for x in leaves]
    inputs = describe_call(leaves, trees.names(args, kwargs, source.positional))
    output: list[Any] = []

    def flat(params, state, arrays, key):
        rest = iter(arrays)
        full = [next(rest) if trees.is_array(x) else x for x in leaves]
        args, kwargs = jax.tree.unflatten(structure, full)
        out, written = source(
            params,
            state | known,
            args,
            kwargs,
            None if key is None else jax.random.wrap_key_data(key),
        )
        found: list[Any] = []
        output[:] = [_split(out, found)]
        return found, dict(written)

    shape = lambda x: jax.ShapeDtypeStruct(x.shape, jax.dtypes.canonicalize_dtype(x.dtype))
    arrays = [shape(x) for x in leaves if trees.is_array(x)]
    key = None if rng is None else shape(jax.random.key_data(rng))
    shapes = jax.tree.map(shape, (dict(params), dict(state)))
    try:
        program = jax.export.export(jax.jit(flat), platforms=PLATFORMS)(*shapes, arrays, key)
    except DataDependent as error:
        settings = {k: v for k, v in state.items() if trees.is_setting(v)}
        if known or not settings or trees.STATE not in error.arguments:
            raise
        return _export(source, params, state, args, kwargs, rng, settings)
    values = {k: np.asarray(v).tolist() for k, v in known.items()}
    told = {"inputs": inputs, "output": output[0], "known": values}
    return told, bytes(program.serialize(vjp_order=1))


def _check_known(known: dict[str, Any], state) -> None:
    """Raises where the state has other values than the program was made for, or unknown ones."""
    for name, value in known.items():
        if isinstance(state[name], jax.core.Tracer):
            raise DataDependent(
                f"the saved program has {name} = {value}",
                arguments=(trees.STATE,),
                why="shapes depend on it, so it is no argument of the program",
                do="close over the state instead of tracing it",
            )
        if np.asarray(state[name]).tolist() != value:
            raise WrongArguments(
                f"{name} is {np.asarray(state[name]).tolist()}, in the saved program {value}",
                why="shapes depend on it, so it is no argument of the program",
                do="save the model again with the new value",
            )


def _split(out: Any, arrays: list[Any]) -> Any:
    """A JSON description of an output; its arrays go into ``arrays``."""
    if trees.is_array(out):
        arrays.append(out)
        return {"array": len(arrays) - 1}
    if isinstance(out, trees.PLAIN):
        return {"value": out}
    if isinstance(out, (tuple, list)):
        return {
            type(out).__name__ if type(out) in (tuple, list) else "tuple": [
                _split(x, arrays) for x in out
            ]
        }
    if type(out) is dict:
        return {"dict": {k: _split(v, arrays) for k, v in out.items()}}
    level = jax.tree_util.tree_flatten_with_path(out, is_leaf=lambda x: x is not out)[0]
    return {"object": {str(path[-1].name): _split(v, arrays) for path, v in level}}


def _join(told: Any, arrays: list[Any]) -> Any:
    ((kind, value),) = told.items()
    if kind == "array":
        return arrays[value]
    if kind == "value":
        return value
    if kind in ("tuple", "list"):
        return {"tuple": tuple, "list": list}[kind](_join(x, arrays) for x in value)
    made = {k: _join(v, arrays) for k, v in value.items()}
    return made if kind == "dict" else Output(made)


def read(
    folder: str | os.PathLike,
) -> tuple[dict[str, jax.Array], dict[str, jax.Array], SavedSource]:
    """(params, state, source) of a folder that ``save`` wrote.

    Raises:
      BadCheckpoint: it is none, of another format, or a file is missing, damaged or exchanged.
    """
    folder = Path(folder)
    try:
        about = json.loads((folder / "model.json").read_text())
        _check_files(folder, about)
        programs = [
            jax.export.deserialize(bytearray((folder / f"call-{i}.jax").read_bytes()))
            for i in range(len(about["calls"]))
        ]
        params, state = (
            load_file(folder / "params.safetensors"),
            load_file(folder / "state.safetensors"),
        )
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise BadCheckpoint(
            f"{folder} is no folder that model.save wrote, or it is damaged",
            why=" ".join(str(error).split())[:200],
            do="save the model again; Hugging Face checkpoints load with tojax.from_pretrained",
        ) from None
    training = tuple(about["training"])
    source = SavedSource(
        about["framework"], about["name"], about["positional"], training, about["calls"], programs
    )
    return params, state, source
