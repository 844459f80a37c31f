"""Compiled programs beside the portable ones, for the kind of machine that saved them.

They are machine code in a pickle of JAX's, which can do anything. So each has a code that only the
user who made it can write, and ``load`` takes those of the same user, unless it is to trust all.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import platform
import secrets
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import jax

from anyjax import warn_once
from anyjax.calls.compilation_cache import cache_folder, processor
from anyjax.dtypes import shape_of, x64
from anyjax.errors import BadCheckpoint, NotWritten, UnusedExecutables
from anyjax.private_names import need
from anyjax.saved.signature import Json

if TYPE_CHECKING:
    from jaxtyping import PyTree

_FEATURE = "compiled programs of saved models"
serialize = need("jax.experimental.serialize_executable:serialize", _FEATURE)
deserialize = need("jax.experimental.serialize_executable:deserialize_and_load", _FEATURE)
FLAGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")
CHECK = "import sys, anyjax; anyjax.load(sys.argv[1], executables=True).source.try_executables()"


class Compilation(NamedTuple):
    """A program to be compiled, and the shapes of its arrays after params and state."""

    name: str
    program: bytes
    arrays: Sequence[PyTree]


def machine() -> dict[str, str]:
    """Returns all that a compiled program depends on, beside the program."""
    device = jax.devices()[0]
    return {
        "jax": jax.__version__,
        "jaxlib": version("jaxlib"),
        "platform": device.platform,
        "device": device.device_kind,
        "driver": device.client.platform_version,
        "processor": processor() if device.platform == "cpu" else platform.machine(),
        "flags": " ".join(f"{name}={os.environ[name]}" for name in FLAGS if name in os.environ),
        "x64": str(x64()),
    }


def write(folder: Path, compilations: Sequence[Compilation], params: PyTree, state: PyTree) -> Json:
    """Compiles programs and writes them; returns their entry in ``model.json``."""
    weights = [[*map(shape_of, in_order(arrays))] for arrays in (params, state)]
    names = sorted(params), sorted(state)
    files = {}
    for name, program, arrays in compilations:
        function = _of_lists(jax.export.deserialize(bytearray(program)), *names)
        compiled = jax.jit(function).lower(*weights, *arrays).compile()
        data, _, _ = serialize(compiled)
        file = folder / f"{name}.exe"
        file.write_bytes(data)
        files[name] = _code(data, _secret())
    return {"machine": machine(), "files": files}


def in_order(arrays: Mapping[str, jax.Array]) -> list[jax.Array]:
    """Returns the arrays in the order of their names, as compiled programs take them."""
    return [arrays[name] for name in sorted(arrays)]


def _of_lists(
    program: jax.export.Exported, param_names: Sequence[str], state_names: Sequence[str]
) -> Callable[..., PyTree]:
    """Returns a program as a function of lists of params and state: JAX sorts a dict each time."""

    def run(params: list, state: list, *arrays: PyTree) -> PyTree:
        return program.call(dict(zip(param_names, params)), dict(zip(state_names, state)), *arrays)

    return run


def check(folder: Path) -> None:
    """Runs all compiled programs in a process of its own, on zeros.

    Raises:
      NotWritten: one fails, or ends the process.
    """
    if jax.default_backend() == "tpu":
        return  # which one process alone can use
    environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    command = [sys.executable, "-c", CHECK, str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if result.returncode:
        lines = result.stderr.strip().splitlines()
        raise NotWritten(
            "a compiled program does not run when it is loaded again",
            why=lines[-1][:300] if lines else f"its process ended with {result.returncode}",
            do="leave out executables=True: the portable programs are compiled in each process",
        )


def read(
    folder: Path,
    entry: Json | None,
    programs: Mapping[str, jax.export.Exported],
    weights: tuple[Mapping[str, jax.Array], Mapping[str, jax.Array]],
    trusted: bool | None,
) -> dict[str, jax.stages.Compiled]:
    """Reads the compiled programs if they are for this machine and of this user.

    Args:
      folder: of the model.
      entry: in ``model.json``.
      programs: the portable programs by name.
      weights: params and state.
      trusted: take those of others, too; False takes none.

    Raises:
      BadCheckpoint: a compiled program for this machine cannot be loaded.
    """
    if entry is None or trusted is False:
        return {}
    this_machine = machine()
    pairs = {k: (v, this_machine.get(k)) for k, v in entry["machine"].items()}
    differences = [f"{k} {a!r}, here {b!r}" for k, (a, b) in pairs.items() if a != b]
    if differences:
        warn_once.warn(
            f"the compiled programs in {folder} are for {'; '.join(differences)}: the portable "
            "ones are compiled instead; save again with executables=True here",
            UnusedExecutables,
        )
        return {}
    secret, executables = _secret(create=False), {}
    for name, code in entry["files"].items():
        data = (folder / f"{name}.exe").read_bytes()
        if not trusted and (secret is None or not hmac.compare_digest(_code(data, secret), code)):
            warn_once.warn(
                f"the compiled programs in {folder} were made by another user: the portable ones "
                "are compiled instead; anyjax.load(folder, executables=True) trusts them",
                UnusedExecutables,
            )
            return {}
        executables[name] = _load(folder, name, data, programs[name], weights)
    return executables


def _load(
    folder: Path, name: str, data: bytes, program: jax.export.Exported, weights: tuple
) -> jax.stages.Compiled:
    (_, _, *arrays), keywords = jax.tree.unflatten(program.in_tree, program.in_avals)
    structure = jax.tree.structure(((*map(in_order, weights), *arrays), keywords))
    try:
        device = jax.devices()[:1]
        return deserialize(data, structure, program.out_tree, execution_devices=device)
    except Exception as error:  # any of pickle's and XLA's
        raise BadCheckpoint(
            f"the compiled program {name} in {folder} cannot be loaded",
            why=" ".join(f"{type(error).__name__}: {error}".split())[:300],
            do="save the model again, or load it without: anyjax.load(folder, executables=False)",
        ) from error


def _code(data: bytes, secret: bytes | None) -> str:
    return "" if secret is None else hmac.new(secret, data, hashlib.sha256).hexdigest()


def _secret(create: bool = True) -> bytes | None:
    """Returns the bytes that only this user can read, in the user's cache folder; None where there
    are none.
    """
    file = cache_folder() / "executables.secret"
    try:
        if not file.exists() and create:
            file.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as opened:
                opened.write(secrets.token_bytes(32))
        return file.read_bytes()
    except OSError:
        return None
