"""Runs a program where nothing can be imported but what an install line brings.

    python -m tests.docs.only_extras hf,cli program.py

The finder of the import system is replaced: a package that none of the extras of anyjax asks for,
by itself or through its requirements, is not there, as in a fresh environment.
"""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import runpy
import sys
from collections.abc import Iterable

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

MADE_BY_PYTHON = "_sysconfigdata"  # and the name of the platform


def requirements(name: str, extras: Iterable[str]) -> list[Requirement]:
    """What a distribution asks for on this machine with these extras."""
    try:
        lines = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:  # of another platform
        return []
    environments = [{"extra": extra} for extra in ("", *extras)]
    wanted = (Requirement(line) for line in lines)
    return [x for x in wanted if not x.marker or any(map(x.marker.evaluate, environments))]


def closure(extras: Iterable[str]) -> set[str]:
    """The distributions that ``anyjax[extras]`` brings, itself included."""
    seen: set[tuple[str, tuple[str, ...]]] = set()
    pending = [("anyjax", tuple(sorted(extras)))]
    while pending:
        if (item := pending.pop()) in seen:
            continue
        seen.add(item)
        pending += [
            (canonicalize_name(x.name), tuple(sorted(x.extras))) for x in requirements(*item)
        ]
    return {name for name, _ in seen}


def modules(names: set[str]) -> set[str]:
    """The top-level modules of these distributions."""
    by_module = importlib.metadata.packages_distributions()
    return {
        module
        for module, distributions in by_module.items()
        if names & {canonicalize_name(x) for x in distributions}
    }


class Only(importlib.machinery.PathFinder):
    """Finds the standard library and what is allowed, by import and by importlib.metadata."""

    allowed: set[str] = set()
    names: set[str] = set()

    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        top = fullname.partition(".")[0]
        named = top in cls.allowed or top in sys.stdlib_module_names
        named |= top.startswith(MADE_BY_PYTHON)
        return super().find_spec(fullname, path, target) if named else None

    @classmethod
    def find_distributions(cls, *args, **kwargs):
        here = super().find_distributions(*args, **kwargs)
        return (x for x in here if canonicalize_name(x.metadata["Name"] or "") in cls.names)


def main() -> None:
    extras, program = sys.argv[1].split(","), sys.argv[2]
    Only.names = closure(extras)
    Only.allowed = {*modules(Only.names), "anyjax"}
    place = next(i for i, x in enumerate(sys.meta_path) if x is importlib.machinery.PathFinder)
    sys.meta_path[place] = Only
    for name in [*sys.modules]:  # what this program itself needed
        if name.partition(".")[0] in ("packaging", "tests"):
            del sys.modules[name]
    sys.argv = [program]
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
