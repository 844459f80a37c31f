"""Saves that a full disk, Ctrl-C or a kill stops, and two at once: whole or not there."""

import contextlib
import signal
import subprocess
import sys
import time

import pytest
import torch

import anyjax
from anyjax.saved import scratch
from tests.saved.test_folder import X, contents
from tests.saved.test_scratch import listed

pytestmark = pytest.mark.processes
locks = pytest.mark.skipif(scratch.fcntl is None, reason="no locks on folders there")


@pytest.fixture
def model():
    return anyjax.from_torch(torch.nn.Linear(3, 2))


@pytest.fixture
def folder(model, tmp_path):
    model.save(tmp_path / "m", X)
    return tmp_path / "m"


FULL = """
import resource, sys, numpy as np, torch, anyjax
from anyjax.errors import NotWritten
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
try:
    anyjax.from_torch(torch.nn.Linear(300, 200)).save(sys.argv[1], np.ones((1, 300), "f"))
except NotWritten as error:
    print(error)
"""


def test_a_file_that_the_system_does_not_take(folder):
    """A limit on the size of a file stands for a full disk: the write itself fails."""
    before = contents(folder)
    run = subprocess.run(
        [sys.executable, "-c", FULL, str(folder)], capture_output=True, text=True, timeout=120
    )
    assert "cannot be written" in run.stdout and "what was there before" in run.stdout, run.stderr
    assert contents(folder) == before and [p.name for p in folder.parent.iterdir()] == ["m"]


INTERRUPTED = """
import sys, time, numpy as np, torch, anyjax
from anyjax.saved import writing
save = writing.save_file
def slow(*args):
    save(*args)
    print("now", flush=True)
    time.sleep(60)
writing.save_file = slow
anyjax.from_torch(torch.nn.Linear(3, 2)).save(sys.argv[1], np.ones((1, 3), "f"))
"""


def test_ctrl_c_in_the_middle(folder):
    before = contents(folder)
    command = [sys.executable, "-c", INTERRUPTED, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:
        assert run.stdout.readline() == b"now\n"
        time.sleep(0.1)
        run.send_signal(signal.SIGINT)
        assert run.wait(60) != 0
    assert contents(folder) == before and [p.name for p in folder.parent.iterdir()] == ["m"]


SLOW = """
import sys, numpy as np, torch, anyjax
from anyjax.saved import writing
save = writing.save_file
def slow(*args):
    save(*args)
    print("now", flush=True)
    sys.stdin.readline()
writing.save_file = slow
anyjax.from_torch(torch.nn.Linear(3, 2)).save(sys.argv[1], np.ones((1, 3), "f"))
"""


@contextlib.contextmanager
def in_the_middle(folder):
    """Another process that has written a part of its save, and waits for a line."""
    command = [sys.executable, "-c", SLOW, str(folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, stderr=subprocess.DEVNULL) as run:
        assert run.stdout.readline() == b"now\n"
        yield run


@locks
def test_what_a_kill_leaves_goes_with_the_next_save(model, tmp_path):
    with in_the_middle(tmp_path / "m") as run:
        run.send_signal(signal.SIGKILL)
        run.wait(60)
    assert len(listed(tmp_path)) == 1 and listed(tmp_path)[0].startswith(".m-")
    model.save(tmp_path / "other", X)
    assert len(listed(tmp_path)) == 2
    model.save(tmp_path / "m", X)
    assert listed(tmp_path) == ["m", "other"]


@locks
def test_two_processes_that_save_at_once(model, tmp_path):
    with in_the_middle(tmp_path / "m") as run:
        model.save(tmp_path / "m", X)
        assert len(listed(tmp_path)) == 2  # the other one's is still there
        run.communicate(b"\n\n", timeout=60)
    assert listed(tmp_path) == ["m"]
    assert anyjax.load(tmp_path / "m")(X[:1]).shape == (1, 2)  # of the last one
