"""Ctrl-C on the command line: no stack trace, and a run that goes on where it was stopped."""

import json
import signal
import subprocess
import sys
import time

import pytest

from tests.cli.test_messages import DEMO, ROOT

pytestmark = pytest.mark.processes


INTERRUPTED = {
    "compile": """
def update(self, text, **more):
    if text == "compiling":
        threading.Timer(0.05, signal.raise_signal, [signal.SIGINT]).start()
rich.status.Status.update = update
""",
    "garbage collection": """
def collect(*about):
    gc.callbacks.remove(collect)
    signal.raise_signal(signal.SIGINT)
gc.callbacks.append(collect)
""",
}


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("name", INTERRUPTED)
def test_an_interruption_is_quiet(name):
    code = f"""
import gc, signal, sys, threading
import rich.status
from anyjax import cli
{INTERRUPTED[name]}
sys.argv = ["anyjax", "run", {str(DEMO)!r}]
cli.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=240
    )
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "")


def begun(out, steps):
    """(a run of finetune in a process of its own, its arguments)"""
    words = out.parent / "notes.txt"
    words.write_text("\n\n".join(f"def f{i}(x):\n    return x + {i}\n" for i in range(40)))
    options = ["--data", words, "--out", out, "--steps", steps, "--every", 2, "--length", 32]
    command = [
        sys.executable,
        "-m",
        "anyjax",
        "finetune",
        DEMO,
        *options,
        "--batch",
        2,
        "--lora",
        2,
    ]
    command = [str(x) for x in command]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True), command


def interrupted(run):
    """What a run says on stderr after Ctrl-C."""
    run.send_signal(signal.SIGINT)
    said = run.communicate(timeout=240)[1]
    assert run.returncode == 130, (run.returncode, said)
    assert "Traceback" not in said
    return said.splitlines()


@pytest.mark.conformance
def test_an_interruption_while_a_step_compiles(tmp_path):
    run, _ = begun(tmp_path / "out", 4)
    while "compiling" not in run.stderr.readline():
        assert run.poll() is None
    time.sleep(0.5)
    assert interrupted(run)[-1] == "stopped; run it again to go on"


@pytest.mark.conformance
def test_an_interruption_while_it_trains(tmp_path):
    """What was being written is whole, and the next call goes on from there."""
    out = tmp_path / "out"
    run, command = begun(out, 400)
    while not any(x.name.isdigit() for x in (out / "checkpoints").glob("*")):
        assert run.poll() is None
        time.sleep(0.01)
    assert interrupted(run)[-1] == "stopped; run it again to go on"
    last = max(int(x.name) for x in (out / "checkpoints").iterdir() if x.name.isdigit())
    lines = (out / "metrics.jsonl").read_text().splitlines()
    command[command.index("400")] = str(last + 2)
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert again.returncode == 0, again.stderr
    steps = [json.loads(x) for x in (out / "metrics.jsonl").read_text().splitlines()]
    assert [x["step"] for x in steps if "loss" in x] == [*range(1, last + 3)]
    assert [json.dumps(x) for x in steps if x["step"] <= last] == [
        x for x in lines if json.loads(x)["step"] <= last
    ]
