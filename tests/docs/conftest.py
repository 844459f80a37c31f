"""Pages show what the tested versions print; other versions may word it otherwise."""

from importlib.metadata import version
from pathlib import Path

import pytest

PINS = dict(
    line.split("==")
    for line in (Path(__file__).parents[2] / "constraints.txt").read_text().splitlines()
    if "==" in line
)


@pytest.fixture(scope="session", autouse=True)
def _tested_versions():
    for name in ("jax", "torch", "transformers"):
        if version(name).partition("+")[0] != PINS[name]:
            pytest.skip(f"pages show what {name} {PINS[name]} prints, not {version(name)}")
