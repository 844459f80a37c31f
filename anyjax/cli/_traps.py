"""Known traps of a machine, each with the way out."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Iterator
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
HIDDEN = "there is a GPU, and JAX_PLATFORMS keeps JAX from it: unset JAX_PLATFORMS"
UNSERVED = 'there is a GPU, and JAX has no plugin for it: pip install "jax[cuda13]"'
CUDA_ALONE = (
    "torch {torch} is a build for CUDA {cuda}, and there is no GPU: it "
    "works, and takes gigabytes of disk; README.md, Install, has the way to a CPU build"
)
ORDER = (
    "a process that imports TensorFlow before torch's compiler may be ended by LLVM on Python "
    "3.12 and newer: import torch and transformers first"
)
NAME = (
    "tojax {tojax} is another project, and pip install tojax does not bring this one, "
    "which had that name before: in scripts of that time write import anyjax"
)
RANK = (
    "jaxlib {jaxlib} can end a process that sums products of 7 or more dimensions on a CPU "
    "(jax-ml/jax#40412): programs beside anyjax are safe, those without it are with jax 0.12"
)
X64 = (
    "JAX's 64-bit mode is on: numbers without a dtype are float64 and int64, slow on most "
    "devices: unset JAX_ENABLE_X64 unless you want that"
)
OFFLINE = "HF_HUB_OFFLINE is set: hub ids are served from the cache alone"
PROXY = (
    "{proxy} is set: downloads go through a proxy; if one fails, download elsewhere and "
    "give the folder"
)
DISK = (
    "{free} are free for the compilation cache in {folder}, which may take "
    "{limit}: free some space, or give --no-cache"
)


def traps(installed: dict[str, Package], jax: JaxState, variables: dict[str, str]) -> Iterator[str]:
    """Yields a sentence for each known trap, from packages, JAX and environment variables."""
    version = {name: package.version for name, package in installed.items()}
    cuda, has_gpu = torch_cuda(), NVIDIA.exists()
    yield from _misfits(version["jax"], version["jaxlib"])
    if has_gpu and {x.platform for x in jax.devices} == {"cpu"}:
        yield HIDDEN if "JAX_PLATFORMS" in variables else UNSERVED
    if cuda is not None and not has_gpu:
        yield CUDA_ALONE.format(torch=version["torch"], cuda=cuda)
    if version["torch"] and version["tensorflow"] and sys.version_info >= TWO_LLVMS:
        yield ORDER
    if tojax := _version("tojax"):
        yield NAME.format(tojax=tojax)
    if version["jaxlib"] in HIGH_RANK and sys.platform.startswith("linux"):
        yield RANK.format(jaxlib=version["jaxlib"])
    if jax.x64:
        yield X64
    proxies = [x for x in PROXIES if x in variables]
    if variables.get("HF_HUB_OFFLINE", "0").lower() in ("1", "on", "yes", "true"):
        yield OFFLINE
    elif proxies:
        yield PROXY.format(proxy=proxies[0])
    folder = Path(os.environ.get("JAX_COMPILATION_CACHE_DIR") or compilation_cache.cache_folder())
    place = next(x for x in (folder, *folder.absolute().parents) if x.exists())
    free, limit = shutil.disk_usage(place).free, compilation_cache.LARGEST
    if free < limit:
        yield DISK.format(free=size(free), folder=folder, limit=size(limit))


def _misfits(version: str | None, library: str | None) -> Iterator[str]:
    """Yields a jaxlib, or a plugin, that does not fit JAX."""
    if not version or not library or "unknown" in (version, library):
        return
    fix = f'pip install --upgrade "jax=={version}"'
    bounds = _requirement("jax", "jaxlib")
    limits = dict(re.findall(r"(>=|<=|==)([\d.]+)", bounds))
    lowest, highest = (limits.get(x) or limits.get("==") for x in (">=", "<="))
    too_old = lowest and numbers(library) < numbers(lowest)
    if too_old or (highest and numbers(library) > numbers(highest)):
        yield f"jax {version} needs {bounds}, and jaxlib {library} is installed: {fix}"
        return
    for plugin in PLUGINS:
        plugin_version = _version(plugin)
        if plugin_version and numbers(plugin_version)[:3] != numbers(library)[:3]:
            yield f"{plugin} {plugin_version} does not fit jaxlib {library}: {fix}"
            return


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
