"""Costs that do not depend on a clock stay what tests/expect/costs.json says, and only fall."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
FILE = ROOT / "tests" / "expect" / "costs.json"
UPDATE = "python -m tests.processes.costs > tests/expect/costs.json"
SLACK = 0.02  # Python calls may be this much more or less; all other figures are exact


def complaints(counted: dict[str, dict[str, int]], allowed: dict[str, dict[str, int]]) -> list[str]:
    """Returns counts above the committed ones, and committed ones that can fall."""
    lines = []
    for model in sorted({*counted, *allowed}):
        have, limits = counted.get(model, {}), allowed.get(model, {})
        for cost in sorted({*have, *limits}):
            number, limit = have.get(cost, 0), limits.get(cost, 0)
            slack = SLACK * limit if cost.startswith("Python calls") else 0
            if number > limit + slack:
                lines.append(f"{model}: {cost}: {number}, at most {limit}")
            elif number < limit - slack:
                lines.append(f"{model}: {cost}: {number} instead of {limit}: {UPDATE}")
    return lines


def test_the_figures_are_of_the_pinned_versions():
    pins = dict(re.findall(r"^([\w-]+)==([\w.]+)", (ROOT / "constraints.txt").read_text(), re.M))
    versions = json.loads(FILE.read_text())["versions"]
    assert versions == {"python": "3.11"} | {k: pins[k] for k in versions if k != "python"}, UPDATE


def test_costs():
    from tests.processes.costs import versions

    command = [sys.executable, "-m", "tests.processes.costs"]
    env = os.environ | {"PYTHONHASHSEED": "0"}
    allowed = json.loads(FILE.read_text())
    if versions() != allowed["versions"]:
        pytest.skip(f"the figures are of {allowed['versions']}, and {versions()} is installed")
    out = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    counted = json.loads(out.stdout)
    assert counted.pop("versions") == allowed.pop("versions")
    assert complaints(counted, allowed) == []


def test_more_and_less_than_the_figures():
    allowed = {"mlp": {"equations": 5, "Python calls of a trace": 100}}
    count = lambda equations, calls: {
        "mlp": {"equations": equations, "Python calls of a trace": calls}
    }
    assert complaints(count(5, 98), allowed) == []
    assert complaints(count(6, 103), allowed) == [
        "mlp: Python calls of a trace: 103, at most 100",
        "mlp: equations: 6, at most 5",
    ]
    assert complaints(count(4, 97), allowed) == [
        f"mlp: Python calls of a trace: 97 instead of 100: {UPDATE}",
        f"mlp: equations: 4 instead of 5: {UPDATE}",
    ]
    assert complaints({"mlp": {"stablehlo.sort": 1}}, {"mlp": {}}) == [
        "mlp: stablehlo.sort: 1, at most 0"
    ]
