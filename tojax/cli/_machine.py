"""The machine: JAX's devices, processor, memory, caches and environment variables."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tojax.calls import compilation_cache
from tojax.cli import _cache

VARIABLES = (
    "JAX_PLATFORMS", "JAX_ENABLE_X64", "JAX_DEFAULT_MATMUL_PRECISION", "JAX_DISABLE_JIT",
    "JAX_DEBUG_NANS", "JAX_NUM_CPU_DEVICES", "XLA_FLAGS", "XLA_PYTHON_CLIENT_PREALLOCATE",
    "XLA_PYTHON_CLIENT_MEM_FRACTION", "LIBTPU_INIT_ARGS", "CUDA_VISIBLE_DEVICES",
    "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE",
    "HF_ENDPOINT", "HF_TOKEN", "TRANSFORMERS_OFFLINE", "KERAS_BACKEND", "TF_USE_LEGACY_KERAS",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "XDG_CACHE_HOME", "PYTHONPATH",
    "PYTHONIOENCODING", "LANG", "LC_ALL", "NO_COLOR",
)  # fmt: skip


def jax_state() -> dict[str, Any]:
    """Imports JAX, and runs a small program on its first device.

    Returns:
      ``error``, None if the device computes; ``devices`` by platform and kind, with their number
      and the bytes of one; ``x64``; ``seconds`` of the import and of the program.
    """
    began = time.perf_counter()
    state: dict[str, Any] = {"error": None, "devices": [], "x64": None, "seconds": {}}
    try:
        import jax

        state["seconds"]["import"] = time.perf_counter() - began
        state["x64"] = bool(jax.config.read("jax_enable_x64"))
        devices = jax.devices()
        kinds = Counter((x.platform, x.device_kind) for x in devices)
        state["devices"] = [
            {"platform": platform, "kind": kind, "count": count, "bytes": _memory(devices[0])}
            for (platform, kind), count in kinds.items()
        ]
        began = time.perf_counter()
        total = float(jax.jit(lambda x: (2 * x).sum())(jax.numpy.arange(4.0)))
        state["seconds"]["program"] = time.perf_counter() - began
        if total != 12:
            state["error"] = f"the device computes {total} for 2 * (0 + 1 + 2 + 3)"
    except Exception as error:  # whatever a package that is broken raises
        message = (str(error).strip() or "no message").splitlines()[0]
        state["error"] = f"{type(error).__name__}: {message}"
    return state


def _memory(device: Any) -> int | None:
    return (device.memory_stats() or {}).get("bytes_limit")  # CPUs report none


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


def caches() -> dict[str, dict[str, Any]]:
    """Returns folder and bytes of the compilation cache and of the Hugging Face cache."""
    folder = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    is_default = folder == str(compilation_cache.default_folder())
    compiled = _cache.contents() if is_default else {"folder": folder}
    hub = hub_folder()
    models = [*hub.glob("models--*")] if hub.is_dir() else []
    nbytes = sum(x.stat().st_size for y in models for x in y.glob("blobs/*") if x.is_file())
    hub_cache = {"folder": str(hub), "models": len(models), "bytes": nbytes}
    return {"compilation": compiled, "hugging_face": hub_cache}


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
