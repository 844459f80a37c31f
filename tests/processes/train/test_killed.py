"""A run that is killed at random moments, and continued, is the run that was not."""

import random
import time

import pytest

from anyjax.train import restore
from tests.processes.train import killed

pytestmark = pytest.mark.processes

WAIT = 120


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(folder of a run that nothing interrupted, seconds that its steps took)."""
    folder = tmp_path_factory.mktemp("whole")
    process = killed.started(folder)
    until(folder / "started", process)
    begin = time.monotonic()
    process.join(WAIT)
    assert process.exitcode == 0
    return folder, time.monotonic() - begin


def until(path, process):
    """Waits for a file."""
    begin = time.monotonic()
    while not path.exists() and process.is_alive() and time.monotonic() < begin + WAIT:
        time.sleep(0.005)


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.conformance)])
def test_killed_at_random_moments(kills, whole, tmp_path):
    """Metrics and the last state are the same, bit for bit."""
    reference, seconds = whole
    draw, folder, hit = random.Random(kills), tmp_path / "run", 0
    for _ in range(kills):
        process = killed.started(folder)
        until(folder / "started", process)
        time.sleep(draw.uniform(0, seconds / (2 if kills < 9 else 4)))
        process.kill()  # SIGKILL
        process.join(WAIT)
        hit += process.exitcode == -9
    process = killed.started(folder)
    process.join(WAIT)
    assert process.exitcode == 0 and hit >= kills // 2
    for name in ("metrics.jsonl", "result"):
        assert (folder / name).read_bytes() == (reference / name).read_bytes()


def test_a_full_disk_leaves_the_last_good_checkpoint(tmp_path):
    """In a process of its own: Orbax's threads complain for a while after it."""
    folder = tmp_path / "run"
    process = killed.started(folder, full_after=4)
    process.join(WAIT)
    told = (folder / "error").read_text()
    assert f"{folder}/checkpoints cannot be written" in told
    assert int(restore(folder, killed.begin()[0]).step) == 4
