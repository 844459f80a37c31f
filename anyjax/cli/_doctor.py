"""``anyjax doctor``: versions, devices and caches, and what works on this machine."""

from __future__ import annotations

import platform
import sys
from dataclasses import asdict, dataclass, replace
from typing import Any

from anyjax import __version__
from anyjax.cli import _machine, _shown
from anyjax.cli._codes import ExitCode
from anyjax.cli._machine import CacheFolder, JaxState
from anyjax.cli._packages import Feature, Package, features, import_problem, packages
from anyjax.cli._traps import traps
from anyjax.cli.writing import Doctor
from anyjax.errors import CORE
from anyjax.units import duration, size

OLDEST = (3, 11)  # Python


@dataclass(frozen=True)
class Diagnosis:
    """The state of a machine; the core works where there are no ``problems``."""

    problems: list[str]
    hardware: dict[str, int | None]
    jax: JaxState
    packages: dict[str, Package]
    features: list[Feature]
    caches: dict[str, CacheFolder]
    environment: dict[str, str]
    traps: list[str]
    anyjax: str = __version__
    python: str = platform.python_version()
    executable: str = sys.executable
    platform: str = platform.platform()

    def as_dict(self) -> dict[str, Any]:
        """Returns all of it by name."""
        about = asdict(self) | {"works": not self.problems}
        for name, package in self.packages.items():
            about["packages"][name]["tested"] = package.tested
        return about | {"features": {x.name: asdict(x) for x in self.features}}


def doctor(options: Doctor) -> None:
    """Runs ``anyjax doctor``."""
    installed = packages()
    if options.imports:
        installed = {name: _imported(package) for name, package in installed.items()}
    with _shown.progress("importing JAX, and running a small program"):
        jax = _machine.jax_state()
    variables = _machine.environment()
    diagnosis = Diagnosis(
        problems=core_problems(installed, jax),
        hardware=_machine.hardware(),
        jax=jax,
        packages=installed,
        features=features(installed),
        caches=_machine.caches(),
        environment=variables,
        traps=[*traps(installed, jax, variables)],
    )
    if options.json:
        _shown.as_json(diagnosis.as_dict())
    else:
        _show(diagnosis)
    if diagnosis.problems:
        sys.exit(ExitCode.FAILED)


def _imported(package: Package) -> Package:
    """Returns the package with the error of its import, if there is one."""
    if package.problem:
        return package
    with _shown.progress(f"importing {package.name}"):
        return replace(package, problem=import_problem(package))


def core_problems(installed: dict[str, Package], jax: JaxState) -> list[str]:
    """Returns why the core does not work, each problem with the way out."""
    problems = []
    if sys.version_info < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        problems.append(f"Python {platform.python_version()} is too old: {oldest} is needed")
    for name in CORE:
        package = installed[name]
        if package.problem:
            fix = package.fix() if package.version else "pip install anyjax"
            problems.append(f"{name}: {package.problem}: {fix}")
    if jax.error and not installed["jax"].problem:
        problems.append(f"JAX does not run a program: {jax.error}")
    return problems


def _show(diagnosis: Diagnosis) -> None:
    """Prints the diagnosis for people."""
    rows = [(x.name, x.version or "-", x.tested_with, x.note) for x in diagnosis.packages.values()]
    works = [(x.name, "yes" if x.works else "no", x.fix) for x in diagnosis.features]
    sections = {
        "caches": [_cache(*x) for x in diagnosis.caches.items()],
        "environment": [f"{k}={x}" for k, x in diagnosis.environment.items()],
        "known traps": diagnosis.traps,
        "the core does not work": diagnosis.problems,
    }
    _shown.console().print(
        f"anyjax {diagnosis.anyjax}, Python {diagnosis.python}, {diagnosis.platform}",
        _hardware(diagnosis.hardware),
        *_devices(diagnosis.jax),
        "",
        _shown.table(["package", "version", "tested with", "remark"], rows),
        "",
        _shown.table(["feature", "works", "to get it"], works),
        *("\n".join([f"\n{title}:", *(f"  {x}" for x in lines)])
          for title, lines in sections.items() if lines),
        *[] if diagnosis.problems else ["\nthe core works"],
        sep="\n",
    )  # fmt: skip


def _hardware(about: dict[str, int | None]) -> str:
    cores = f"{about['usable_cores']} of {about['cores']} CPU cores"
    memory, available = about["memory"], about["available_memory"]
    if memory is None or available is None:
        return cores
    return f"{cores}, {size(memory)} of memory, {size(available)} of it available"


def _devices(jax: JaxState) -> list[str]:
    """Returns lines about JAX's devices and the program that was run."""
    lines = []
    for x in jax.devices:
        memory = f", {size(x.bytes)} each" if x.bytes else ""
        lines.append(f"JAX device: {x.count} x {x.platform} ({x.kind}){memory}")
    if jax.error:
        return [*lines, f"JAX does not run a program: {jax.error}"]
    times = ", ".join(f"{name} {duration(seconds)}" for name, seconds in jax.seconds.items())
    return [*lines, f"JAX computes: {times}"]


def _cache(name: str, cache: CacheFolder) -> str:
    amount = ""
    if cache.bytes is not None:
        amount = f", {cache.entries} entries, {size(cache.bytes)}"
    return f"{name}: {cache.folder or 'off'}{amount}"
