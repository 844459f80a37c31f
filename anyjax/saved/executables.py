"""Compiled programs beside the portable ones, for the kind of machine that saved them, or for chips
that are not here.

They are machine code in a pickle of JAX's, which can do anything. So each has a code that only the
user who made it can write, and ``load`` takes those of the same user, unless it is to trust all.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import platform
import secrets
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from anyjax import warn_once
from anyjax.calls.compilation_cache import cache_folder, processor
from anyjax.chips.devices import compile_lowered, devices_of, platform_of, platform_of_device
from anyjax.chips.figures import slice_of
from anyjax.dtypes import shape_of, x64
from anyjax.errors import BadCheckpoint, NotWritten, Unsupported, UnusedExecutables, WrongArguments
from anyjax.numerics.attention import KERNELS
from anyjax.private_names import need
from anyjax.saved.checksum import Json
from anyjax.typing import PyTree

_FEATURE = "compiled programs of saved models"
serialize = need("jax.experimental.serialize_executable:serialize", _FEATURE)
deserialize = need("jax.experimental.serialize_executable:deserialize_and_load", _FEATURE)
BYTES = 32  # of a secret
FLAGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")
CHECK = "import sys, anyjax; anyjax.load(sys.argv[1], executables=True).source.try_executables()"


class Compilation(NamedTuple):
    """A program to be compiled, and the shapes of its arrays after params and state."""

    name: str
    program: bytes
    arrays: Sequence[PyTree]


def machine(device: jax.Device | None = None) -> dict[str, str]:
    """Returns all that a compiled program depends on, beside the program.

    Args:
      device: that is not here; by default the first one of this process. Of another machine's GPU
        neither driver nor processor are known.
    """
    target = device or jax.devices()[0]
    described = {
        "jax": jax.__version__,
        "jaxlib": version("jaxlib"),
        "platform": target.platform,
        "device": target.device_kind,
        "plugin": _plugin(target.platform),
        "driver": target.client.platform_version,
        "processor": processor() if target.platform == "cpu" else platform.machine(),
        "flags": " ".join(f"{name}={os.environ[name]}" for name in FLAGS if name in os.environ),
        "x64": str(x64()),
    }
    unknown = () if device is None else ("processor", "driver")[: 2 - (target.platform == "tpu")]
    return {k: v for k, v in described.items() if k not in unknown}


def _plugin(platform: str) -> str:
    """Returns the version of JAX's package for a platform; "" where there is none."""
    names = {"gpu": ("jax-cuda12-plugin", "jax-cuda13-plugin"), "tpu": ("libtpu",)}
    for name in names.get(platform, ()):
        with contextlib.suppress(PackageNotFoundError):
            return f"{name} {version(name)}"
    return ""


def write(
    folder: Path,
    compilations: Sequence[Compilation],
    params: PyTree,
    state: PyTree,
    chips: str | None = None,
) -> Json:
    """Compiles programs and writes them; returns their entry in ``model.json``.

    Args:
      folder: of the model.
      compilations: the programs.
      params, state: the weights.
      chips: a slice whose first device they are for, by default this machine's.
    """
    device = None if chips is None else devices_of(chips)[0]
    place = None
    if device is not None:
        place = NamedSharding(Mesh(np.array([device]), ("",)), PartitionSpec())
    shaped = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place)
    weights = [[*map(shape_of, in_order(arrays))] for arrays in (params, state)]
    names = sorted(params), sorted(state)
    files, described = {}, machine(device)
    for name, program, arrays in compilations:
        exported = jax.export.deserialize(bytearray(program))
        function = _of_lists(exported, *names)
        arguments = jax.tree.map(shaped, (*weights, *arrays))
        traced = jax.jit(function).trace(*arguments)
        lowered = traced.lower(lowering_platforms=device and (platform_of_device(device),))
        if chips and on_gpu(chips) and any(x in lowered.as_text() for x in KERNELS):
            raise Unsupported(
                f"executables for {chips} of a model that was loaded from a folder",
                why="its programs have attention by cuDNN, whose kernels the device alone can make",
                do="save them from the original model, or with executables=True on the device",
            )
        compiled = lowered.compile() if device is None else compile_lowered(lowered, device)
        data, _, _ = serialize(compiled)
        _file(folder, name, chips).write_bytes(data)
        files[name] = _code(name, data, exported, described, _secret())
    entry: Json = {"machine": described, "files": files}
    return entry if chips is None else {"chips": chips, **entry}


def on_gpu(chips: str) -> bool:
    """Returns whether a slice is of GPUs."""
    return platform_of(slice_of(chips)[0].name) == "cuda"


def check_chips(names: Sequence[str], platforms: Sequence[str]) -> None:
    """Raises WrongArguments for a slice that the portable programs do not run on."""
    for chips in names:
        platform = platform_of_device(devices_of(chips)[0])
        if platform not in platforms:
            raise WrongArguments(
                f"executables for {chips} of a model that is saved for {', '.join(platforms)}",
                where="model.save(..., platforms=, executables=)",
                why=f"they are compiled from the portable programs, and {chips} is {platform}",
                do=f"add {platform!r} to platforms",
            )


def _file(folder: Path, name: str, chips: str | None) -> Path:
    return folder / (f"{name}.exe" if chips is None else f"{name}.{chips}.exe")


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
    entries: Sequence[Json],
    programs: Mapping[str, jax.export.Exported],
    weights: tuple[Mapping[str, jax.Array], Mapping[str, jax.Array]],
    trusted: bool | None,
) -> dict[str, jax.stages.Compiled]:
    """Reads the compiled programs if they are for this machine and of this user.

    Args:
      folder: of the model.
      entries: in ``model.json``, one for each kind of machine.
      programs: the portable programs by name.
      weights: params and state.
      trusted: take those of others, too; False takes none.

    Raises:
      BadCheckpoint: a compiled program for this machine cannot be loaded.
    """
    if not entries or trusted is False:
        return {}
    differences = [_differences(entry, machine()) for entry in entries]
    if all(differences):
        fewest = min(differences, key=len)
        warn_once.warn(
            f"the compiled programs in {folder} are for {'; '.join(fewest)}: the portable "
            "ones are compiled instead; save again with executables=True here",
            UnusedExecutables,
        )
        return {}
    entry = entries[next(i for i, x in enumerate(differences) if not x)]
    secret, executables = _secret(create=False), {}
    for name, code in entry["files"].items():
        data = _file(folder, name, entry.get("chips")).read_bytes()
        right = _code(name, data, programs[name], entry["machine"], secret)
        if not trusted and (secret is None or not hmac.compare_digest(right, code)):
            warn_once.warn(
                f"the compiled programs in {folder} were made by another user, or of another "
                "model: the portable ones are compiled instead; anyjax.load(folder, "
                "executables=True) trusts them",
                UnusedExecutables,
            )
            return {}
        executables[name] = _load(folder, name, data, programs[name], weights)
    return executables


def _differences(entry: Json, here: Mapping[str, str]) -> list[str]:
    """Returns in words where this machine is another than that of an entry."""
    pairs = ((k, v, here.get(k)) for k, v in entry["machine"].items())
    return [f"{k} {a!r}, here {b!r}" for k, a, b in pairs if a != b]


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


def _code(
    name: str,
    data: bytes,
    program: jax.export.Exported,
    described: Mapping[str, str],
    secret: bytes | None,
) -> str:
    """Returns what only this user can write of a compiled program: which machine and which portable
    program it is for is in it.
    """
    if secret is None:
        return ""
    purpose = json.dumps([name, sorted(described.items())]).encode()
    digests = (hashlib.sha256(x).digest() for x in (purpose, program.mlir_module_serialized, data))
    return hmac.new(secret, b"".join(digests), hashlib.sha256).hexdigest()


def _secret(create: bool = True) -> bytes | None:
    """Returns the bytes that only this user can read, in the user's cache folder; None where there
    are none.
    """
    file = cache_folder() / "executables.secret"
    try:
        if create and not _is_secret(file):  # such as an empty one, which a full disk leaves behind
            file.parent.mkdir(parents=True, exist_ok=True)
            scratch = file.with_suffix(f".{os.getpid()}")
            descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as opened:
                opened.write(secrets.token_bytes(BYTES))
            scratch.replace(file)
        return file.read_bytes() if _is_secret(file) else None
    except OSError:
        return None


def _is_secret(file: Path) -> bool:
    """Returns whether a file is long enough, of this user, and nobody else can read it."""
    if not file.is_file() or (about := file.stat()).st_size < BYTES:
        return False
    return os.name == "nt" or (about.st_uid == os.geteuid() and not about.st_mode & 0o077)
