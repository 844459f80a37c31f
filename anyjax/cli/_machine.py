"""The machine: JAX's devices, processor, memory, caches and environment variables."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from anyjax.calls import compilation_cache
from anyjax.cli import _cache
from anyjax.cli._shown import timed

if TYPE_CHECKING:
    import jax

VARIABLES = (
    "JAX_PLATFORMS", "JAX_ENABLE_X64", "JAX_DEFAULT_MATMUL_PRECISION", "JAX_DISABLE_JIT",
    "JAX_DEBUG_NANS", "JAX_NUM_CPU_DEVICES", "XLA_FLAGS", "XLA_PYTHON_CLIENT_PREALLOCATE",
    "XLA_PYTHON_CLIENT_MEM_FRACTION", "LIBTPU_INIT_ARGS", "CUDA_VISIBLE_DEVICES",
    "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE",
    "HF_ENDPOINT", "HF_TOKEN", "TRANSFORMERS_OFFLINE", "KERAS_BACKEND", "TF_USE_LEGACY_KERAS",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "XDG_CACHE_HOME", "PYTHONPATH",
    "PYTHONIOENCODING", "LANG", "LC_ALL", "NO_COLOR",
)  # fmt: skip


@dataclass(frozen=True)
class Device:
    """JAX's devices of one kind, and the bytes of one of them, None where that is not reported."""

    platform: str
    kind: str
    count: int
    bytes: int | None


@dataclass(frozen=True)
class JaxState:
    """JAX's devices, and how a small program ran; ``error`` is None if it did.

    Attributes:
      x64: whether numbers have 64 bits by default.
      seconds: of the import and of the program.
    """

    error: str | None = None
    devices: tuple[Device, ...] = ()
    x64: bool | None = None
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class CacheFolder:
    """A folder of a cache, None if it is off; ``entries`` are programs or models."""

    folder: str | None
    entries: int | None = None
    bytes: int | None = None


def jax_state() -> JaxState:
    """Imports JAX, and runs a small program on its first device."""
    state = JaxState()
    try:
        seconds, jax = timed(lambda: importlib.import_module("jax"))
        state = replace(state, seconds={"import": seconds}, x64=jax.config.read("jax_enable_x64"))
        state = replace(state, devices=_devices(jax.devices()))
        double = lambda: float(jax.jit(lambda x: (2 * x).sum())(jax.numpy.arange(4.0)))
        seconds, total = timed(double)
        state = replace(state, seconds={**state.seconds, "program": seconds})
        if total == 12:
            return state
        return replace(state, error=f"the device computes {total} for 2 * (0 + 1 + 2 + 3)")
    except Exception as error:  # whatever a package that is broken raises
        message = (str(error).strip() or "no message").splitlines()[0]
        return replace(state, error=f"{type(error).__name__}: {message}")


def _devices(devices: Sequence[jax.Device]) -> tuple[Device, ...]:
    """Returns the devices by kind."""
    kinds: dict[tuple[str, str], list[jax.Device]] = {}
    for device in devices:
        kinds.setdefault((device.platform, device.device_kind), []).append(device)
    memory = lambda device: (device.memory_stats() or {}).get("bytes_limit")  # CPUs report none
    return tuple(Device(*kind, len(x), memory(x[0])) for kind, x in kinds.items())


def hardware() -> dict[str, int | None]:
    """Returns the number of cores, of those that this process may use, and bytes of memory."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = os.cpu_count()
    about = {"cores": cores, "usable_cores": len(affinity(0)) if affinity else cores}
    try:
        page = os.sysconf("SC_PAGE_SIZE")
        memory, available = (
            page * os.sysconf(name) for name in ("SC_PHYS_PAGES", "SC_AVPHYS_PAGES")
        )
    except (AttributeError, ValueError, OSError):  # not on Windows
        return {**about, "memory": None, "available_memory": None}
    try:  # what caches of files hold is available, too
        text = Path("/proc/meminfo").read_text()
        available = 1024 * int(re.findall(r"MemAvailable: *(\d+) kB", text)[0])
    except (OSError, IndexError):
        pass
    return {**about, "memory": memory, "available_memory": available}


def caches() -> dict[str, CacheFolder]:
    """Returns the compilation cache and the Hugging Face cache."""
    folder = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    compiled = CacheFolder(folder)
    if folder == str(compilation_cache.default_folder()):
        about = _cache.contents()
        compiled = CacheFolder(folder, about["programs"], about["bytes"])
    hub = hub_folder()
    models = [*hub.glob("models--*")] if hub.is_dir() else []
    nbytes = sum(x.stat().st_size for y in models for x in y.glob("blobs/*") if x.is_file())
    return {
        "compilation": compiled,
        "Hugging Face": CacheFolder(str(hub), len(models), nbytes),
    }


def hub_folder() -> Path:
    """Returns the folder of the Hugging Face cache, as huggingface_hub chooses it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = Path(os.environ.get("HF_HOME") or cache / "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()


def environment() -> dict[str, str]:
    """Returns the environment variables that matter, without tokens and passwords."""
    values = {x: os.environ.get(x) or os.environ.get(x.lower()) for x in VARIABLES}
    shown = {k: re.sub(r"//[^/@]*@", "//...@", v) for k, v in values.items() if v}
    return shown | {k: "(set)" for k in shown if "TOKEN" in k}
