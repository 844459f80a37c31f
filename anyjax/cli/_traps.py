"""Known traps of a machine, each with the way out."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from importlib import metadata
from pathlib import Path

from anyjax.calls import compilation_cache
from anyjax.cli._machine import JaxState
from anyjax.cli._packages import Package, numbers
from anyjax.units import size

PLUGINS = ("jax-cuda12-plugin", "jax-cuda13-plugin")
TWO_LLVMS = (3, 12)  # the first Python whose TensorFlow and torch clash
HIGH_RANK = {"0.10.2", "0.11.0"}  # of jaxlib, as in anyjax.numerics.high_rank, which imports JAX
PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")
NVIDIA = Path("/dev/nvidiactl")  # the driver's device, on Linux


def traps(installed: dict[str, Package], jax: JaxState, variables: dict[str, str]) -> list[str]:
    """Returns a sentence for each known trap, from packages, JAX and environment variables."""
    texts = [
        library_trap(installed),
        gpu_trap(jax, variables),
        torch_trap(installed),
        order_trap(installed),
        name_trap(),
        rank_trap(installed),
        x64_trap(jax),
        network_trap(variables),
        disk_trap(),
    ]
    return [text for text in texts if text]


def library_trap(installed: dict[str, Package]) -> str:
    """Returns the trap of a jaxlib, or a plugin, that does not fit JAX."""
    version, library = installed["jax"].version, installed["jaxlib"].version
    if not version or not library or "unknown" in (version, library):
        return ""
    fix = f'pip install --upgrade "jax=={version}"'
    bounds = _requirement("jax", "jaxlib")
    limits = dict(re.findall(r"(>=|<=|==)([\d.]+)", bounds))
    lowest, highest = (limits.get(x) or limits.get("==") for x in (">=", "<="))
    too_old = lowest and numbers(library) < numbers(lowest)
    if too_old or (highest and numbers(library) > numbers(highest)):
        return f"jax {version} needs {bounds}, and jaxlib {library} is installed: {fix}"
    for plugin in PLUGINS:
        plugin_version = _version(plugin)
        if plugin_version and numbers(plugin_version)[:3] != numbers(library)[:3]:
            return f"{plugin} {plugin_version} does not fit jaxlib {library}: {fix}"
    return ""


def _requirement(package: str, needed: str) -> str:
    """Returns what a package requires of another one, without its extras."""
    try:
        lines = metadata.requires(package) or []
    except Exception:  # damaged metadata raises many classes
        return ""
    return next((x for x in lines if re.match(rf"{needed}\s*[<>=(]", x) and ";" not in x), "")


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except Exception:  # not installed, or its metadata is damaged: the table of packages says so
        return None


def gpu_trap(jax: JaxState, variables: dict[str, str]) -> str:
    """Returns the trap of a GPU that JAX does not use."""
    platforms = {x.platform for x in jax.devices}
    if not NVIDIA.exists() or platforms != {"cpu"}:
        return ""
    if "JAX_PLATFORMS" in variables:
        return "there is a GPU, and JAX_PLATFORMS keeps JAX from it: unset JAX_PLATFORMS"
    return 'there is a GPU, and JAX has no plugin for it: pip install "jax[cuda13]"'


def torch_trap(installed: dict[str, Package]) -> str:
    """Returns the trap of a CUDA build of torch on a machine without a GPU."""
    cuda = torch_cuda()
    if cuda is None or NVIDIA.exists():
        return ""
    return (
        f"torch {installed['torch'].version} is a build for CUDA {cuda}, and there is no GPU: it "
        "works, and takes gigabytes of disk; README.md, Install, has the way to a CPU build"
    )


def torch_cuda() -> str | None:
    """Returns the CUDA version that torch was built for; its file is read, not imported."""
    try:
        spec = importlib.util.find_spec("torch")
        assert spec is not None and spec.origin is not None
        text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    except Exception:  # no torch, or one that is damaged
        return None
    match = re.search(r"^cuda\b[^=]*= *['\"]([\d.]+)", text, re.M)
    return match[1] if match else None


def order_trap(installed: dict[str, Package]) -> str:
    """Returns the trap of two copies of LLVM in a process."""
    both = all(installed[x].version for x in ("torch", "tensorflow"))
    if not both or sys.version_info < TWO_LLVMS:
        return ""
    return (
        "a process that imports TensorFlow before torch's compiler may be ended by LLVM on Python "
        "3.12 and newer: import torch and transformers first"
    )


def name_trap() -> str:
    """Returns the trap of the other project that has the name this one had."""
    version = _version("tojax")
    if version is None:
        return ""
    return (
        f"tojax {version} is another project, and pip install tojax does not bring this one, "
        "which had that name before: in scripts of that time write import anyjax"
    )


def rank_trap(installed: dict[str, Package]) -> str:
    """Returns the trap of the releases of jaxlib that anyjax.numerics.high_rank works around."""
    version = installed["jaxlib"].version
    if version not in HIGH_RANK or not sys.platform.startswith("linux"):
        return ""
    return (
        f"jaxlib {version} can end a process that sums products of 7 or more dimensions on a CPU "
        "(jax-ml/jax#40412): programs beside anyjax are safe, those without it are with jax 0.12"
    )


def x64_trap(jax: JaxState) -> str:
    """Returns the trap of 64-bit numbers."""
    if not jax.x64:
        return ""
    return (
        "JAX's 64-bit mode is on: numbers without a dtype are float64 and int64, slow on most "
        "devices: unset JAX_ENABLE_X64 unless you want that"
    )


def network_trap(variables: dict[str, str]) -> str:
    """Returns the trap of a proxy, or of a hub that is not asked."""
    if variables.get("HF_HUB_OFFLINE", "0").lower() in ("1", "on", "yes", "true"):
        return "HF_HUB_OFFLINE is set: hub ids are served from the cache alone"
    proxies = [x for x in PROXIES if x in variables]
    if not proxies:
        return ""
    return (
        f"{proxies[0]} is set: downloads go through a proxy; if one fails, download elsewhere and "
        "give the folder"
    )


def disk_trap() -> str:
    """Returns the trap of a disk without room for the compilation cache."""
    folder = Path(os.environ.get("JAX_COMPILATION_CACHE_DIR") or compilation_cache.cache_folder())
    place = next(x for x in (folder, *folder.absolute().parents) if x.exists())
    free = shutil.disk_usage(place).free
    if free >= compilation_cache.LARGEST:
        return ""
    return (
        f"{size(free)} are free for the compilation cache in {folder}, which may take "
        f"{size(compilation_cache.LARGEST)}: free some space, or give --no-cache"
    )
