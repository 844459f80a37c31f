"""Reads tests/expect/*.txt, what is known not to work; the format: tests/expect/README.md."""

from __future__ import annotations

import platform
from collections.abc import Collection, Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

FOLDER = Path(__file__).parent / "expect"


class BadExpectations(ValueError):
    """A list of expected failures breaks its own format."""


def expected_failures(file: str | Path) -> dict[str, str]:
    """The names in a list with the reason of each.

    Args:
      file: a name in ``tests/expect`` (``"house.txt"``) or a path.

    Raises:
      BadExpectations: a name has no reason above it, or stands twice.
      FileNotFoundError: there is no such list.
    """
    path = FOLDER / file
    found: dict[str, str] = {}
    reason: list[str] = []
    below = False  # whether names followed the current reason, so that a comment starts a new one
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        text = line.strip()
        if not text:
            reason, below = [], False
        elif text.startswith("#"):
            reason = [*([] if below else reason), text.lstrip("#").strip()]
            below = False
        else:
            said, below = " ".join(filter(None, reason)), True
            if not said:
                raise BadExpectations(f"{path.name}:{number}: {text!r} has no reason above it")
            if text in found:
                raise BadExpectations(f"{path.name}:{number}: {text!r} stands twice")
            found[text] = said
    return found


def of_versions(file: str | Path = "versions.txt") -> dict[str, str]:
    """Returns the tests that fail with an installed version, with the reason of each.

    A line of the list is a requirement (of a package, or of Python) and a test's id.
    """
    installed: dict[str, str] = {}
    for line, reason in expected_failures(file).items():
        requirement, test = line.split(" ", 1)
        if _holds(Requirement(requirement)):
            installed[test] = reason
    return installed


def _holds(requirement: Requirement) -> bool:
    if requirement.name == "python":
        return requirement.specifier.contains(platform.python_version())
    try:
        return requirement.specifier.contains(metadata.version(requirement.name), prereleases=True)
    except metadata.PackageNotFoundError:
        return False


def params(names: Iterable[str], file: str | Path, known: Collection[str] = ()) -> list[Any]:
    """Test parameters for these names; those that the list names must fail.

    Args:
      names: what to run now.
      file: the list.
      known: every name there is, where ``names`` is a part of them.

    Raises:
      BadExpectations: the list has a name that is in neither.
    """
    names, expected = list(names), expected_failures(file)
    if stale := sorted(set(expected) - set(names) - set(known)):
        raise BadExpectations(f"{file} names what no test has: {', '.join(stale)}")
    return [
        pytest.param(
            name,
            id=name,
            marks=[pytest.mark.xfail(reason=expected[name], strict=True)]
            if name in expected
            else [],
        )
        for name in names
    ]


def complaints(failed: Mapping[str, str], expected: Mapping[str, str]) -> list[str]:
    """For checks that find all failures at once: what failed unannounced, and what no longer fails.

    Args:
      failed: what failed, with what is wrong.
      expected: what should fail, with its reason.
    """
    new = [f"{name}: {wrong}" for name, wrong in failed.items() if name not in expected]
    gone = [f"{name}: expected to fail and does not" for name in expected if name not in failed]
    return new + gone
