"""``anyjax doctor``: versions, devices and caches, and what works on this machine."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.console import Console
from rich.markup import escape

from anyjax import __version__
from anyjax.cli import _machine, _shown
from anyjax.cli._codes import ExitCode
from anyjax.cli._machine import CacheFolder, JaxState
from anyjax.cli._packages import Feature, Package, features, import_problem, packages
from anyjax.cli._traps import traps
from anyjax.cli.options import Doctor
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
    diagnosis = diagnose(installed, jax)
    if options.json:
        _shown.as_json(diagnosis.as_dict())
    else:
        show(_shown.console(), diagnosis)
    sys.exit(ExitCode.FAILED if diagnosis.problems else ExitCode.OK)


def _imported(package: Package) -> Package:
    """Returns the package with the error of its import, if there is one."""
    if package.problem:
        return package
    with _shown.progress(f"importing {package.name}"):
        return replace(package, problem=import_problem(package))


def diagnose(installed: dict[str, Package], jax: JaxState) -> Diagnosis:
    """Returns the state of this machine."""
    variables = _machine.environment()
    return Diagnosis(
        problems=core_problems(installed, jax),
        hardware=_machine.hardware(),
        jax=jax,
        packages=installed,
        features=features(installed),
        caches=_machine.caches(),
        environment=variables,
        traps=traps(installed, jax, variables),
    )


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


def show(console: Console, diagnosis: Diagnosis) -> None:
    """Prints the diagnosis for people."""
    line = lambda text="": console.print(text, markup=False)
    line(f"anyjax {diagnosis.anyjax}, Python {diagnosis.python}, {diagnosis.platform}")
    line(_hardware(diagnosis.hardware))
    for text in _devices(diagnosis.jax):
        line(text)
    header = ["package", "version", "tested with", "remark"]
    rows = [
        (x.name, x.version or "-", x.tested_with, escape(x.note))
        for x in diagnosis.packages.values()
    ]
    line()
    console.print(_shown.table(header, rows))
    line()
    rows_of_features = [
        (x.name, "yes" if x.works else "no", escape(x.fix)) for x in diagnosis.features
    ]
    console.print(_shown.table(["feature", "works", "to get it"], rows_of_features))
    _section(console, "caches", [_cache(*x) for x in diagnosis.caches.items()])
    _section(console, "environment", [f"{k}={v}" for k, v in diagnosis.environment.items()])
    _section(console, "known traps", diagnosis.traps)
    _section(console, "the core does not work", diagnosis.problems)
    if not diagnosis.problems:
        line("\nthe core works")


def _section(console: Console, title: str, lines: Iterable[str]) -> None:
    """Prints lines under a title, nothing if there are none."""
    text = "\n".join(f"  {line}" for line in lines)
    if text:
        console.print(f"\n{title}:\n{text}", markup=False)


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
