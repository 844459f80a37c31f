"""``tojax doctor``: versions, devices and caches, and what works on this machine."""

from __future__ import annotations

import dataclasses
import platform
import sys
from typing import Any

from rich.console import Console
from rich.markup import escape

from tojax import __version__
from tojax.cli import _machine, _shown
from tojax.cli._codes import ExitCode
from tojax.cli._packages import Package, features, import_problem, packages
from tojax.cli._traps import traps
from tojax.cli.options import Doctor
from tojax.errors import CORE
from tojax.units import duration, size

OLDEST = (3, 11)  # Python


def doctor(options: Doctor) -> None:
    """Runs ``tojax doctor``."""
    installed = packages()
    if options.imports:
        installed = {name: _imported(package) for name, package in installed.items()}
    with _shown.progress("importing JAX, and running a small program"):
        jax = _machine.jax_state()
    about = _about(installed, jax)
    if options.json:
        _shown.as_json(about)
    else:
        _show(about, installed)
    sys.exit(ExitCode.OK if about["works"] else ExitCode.FAILED)


def _imported(package: Package) -> Package:
    """Returns the package with the error of its import, if there is one."""
    if package.problem:
        return package
    with _shown.progress(f"importing {package.name}"):
        return dataclasses.replace(package, problem=import_problem(package))


def _about(installed: dict[str, Package], jax: dict[str, Any]) -> dict[str, Any]:
    """Returns all that is known, by name."""
    variables, problems = _machine.environment(), _core_problems(installed, jax)
    works = {x.name: {"works": x.works, "why": x.why, "fix": x.fix} for x in features(installed)}
    return {
        "works": not problems,
        "problems": problems,
        "tojax": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "hardware": _machine.hardware(),
        "jax": jax,
        "packages": {k: dataclasses.asdict(x) | {"tested": x.tested} for k, x in installed.items()},
        "features": works,
        "caches": _machine.caches(),
        "environment": variables,
        "traps": traps(installed, jax, variables),
    }


def _core_problems(installed: dict[str, Package], jax: dict[str, Any]) -> list[str]:
    """Returns why the core does not work, each problem with the way out."""
    problems = []
    if sys.version_info < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        problems.append(f"Python {platform.python_version()} is too old: {oldest} is needed")
    for name in CORE:
        package = installed[name]
        if package.problem:
            fix = package.fix() if package.version else "pip install tojax"
            problems.append(f"{name}: {package.problem}: {fix}")
    if jax["error"] and not installed["jax"].problem:
        problems.append(f"JAX does not run a program: {jax['error']}")
    return problems


def _show(about: dict[str, Any], installed: dict[str, Package]) -> None:
    """Prints it for people."""
    console = _shown.console()
    line = lambda text="": console.print(text, markup=False)
    line(f"tojax {about['tojax']}, Python {about['python']}, {about['platform']}")
    line(_hardware(about["hardware"]))
    for text in _devices(about["jax"]):
        line(text)
    rows = [(x.name, x.version or "-", x.tested_with, x.note) for x in installed.values()]
    line()
    console.print(_shown.table(["package", "version", "tested with", "remark"], rows))
    rows = [
        (name, "yes" if x["works"] else "no", escape(x["fix"]))
        for name, x in about["features"].items()
    ]
    line()
    console.print(_shown.table(["feature", "works", "to get it"], rows))
    line()
    for text in _caches(about["caches"]):
        line(text)
    _section(console, "environment", [f"{k}={v}" for k, v in about["environment"].items()])
    _section(console, "known traps", about["traps"])
    _section(console, "the core does not work", about["problems"])
    if about["works"]:
        line("\nthe core works")


def _section(console: Console, title: str, lines: list[str]) -> None:
    """Prints lines under a title, nothing if there are none."""
    if lines:
        console.print(f"\n{title}:", markup=False)
        for text in lines:
            console.print(f"  {text}", markup=False)


def _hardware(about: dict[str, int | None]) -> str:
    cores = f"{about['usable_cores']} of {about['cores']} CPU cores"
    memory, available = about["memory"], about["available_memory"]
    if memory is None or available is None:
        return cores
    return f"{cores}, {size(memory)} of memory, {size(available)} of it available"


def _devices(jax: dict[str, Any]) -> list[str]:
    """Returns lines about JAX's devices and the program that was run."""
    lines = []
    for x in jax["devices"]:
        memory = f", {size(x['bytes'])} each" if x["bytes"] else ""
        lines.append(f"JAX device: {x['count']} x {x['platform']} ({x['kind']}){memory}")
    if jax["error"]:
        return [*lines, f"JAX does not run a program: {jax['error']}"]
    seconds = jax["seconds"]
    times = f"import {duration(seconds['import'])}, small program {duration(seconds['program'])}"
    return [*lines, f"JAX computes: {times}"]


def _caches(about: dict[str, dict[str, Any]]) -> list[str]:
    """Returns lines about the caches."""
    compiled, hub = about["compilation"], about["hugging_face"]
    programs = ""
    if "bytes" in compiled:
        programs = f", {compiled['programs']} programs, {size(compiled['bytes'])}"
    return [
        f"compilation cache: {compiled['folder'] or 'off'}{programs}",
        f"Hugging Face cache: {hub['folder']}, {hub['models']} models, {size(hub['bytes'])}",
    ]
