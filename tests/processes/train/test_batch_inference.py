"""Offline batch inference by several processes: each id once, also when one is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

pytest.importorskip("transformers")

import anyjax

pytestmark = pytest.mark.processes

EXAMPLES = Path(__file__).parents[3] / "examples"
MODEL, PART, SIZES, WAIT = EXAMPLES / "tiny-llama", 64, (32, 64, 128, 256), 300
WORDS = list("abcdefgh ()[]+-:")


@pytest.fixture
def source(tmp_path):
    """Texts of all lengths: of each part, and in all."""
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice(WORDS, 2 + int(n))) for n in rng.lognormal(3, 1, 12 * PART - 5)]
    texts[:3] = "", "a", "two\u2028lines \x85"  # no score, and what splitlines() would cut
    rows = [{"id": f"text-{i}", "text": text} for i, text in enumerate(texts)]
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (tmp_path / "texts.jsonl").write_text("".join(lines), encoding="utf-8")
    return tmp_path / "texts.jsonl"


def started(*command):
    """A process in a session of its own, its output in a pipe."""
    command = [sys.executable, *map(str, command)]
    env = os.environ | {"PYTHONPATH": str(EXAMPLES.parent), "RAY_USAGE_STATS_ENABLED": "0"}
    env |= {"PYTHONUNBUFFERED": "1"}
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return subprocess.Popen(command, env=env, start_new_session=True, **pipes)


def ended(process):
    """(exit code, output); what it left behind is ended."""
    try:
        output, _ = process.communicate(timeout=WAIT)
    finally:
        for left in psutil.process_iter(["pid"]):
            try:
                if os.getsid(left.pid) == process.pid:
                    left.kill()
            except (ProcessLookupError, PermissionError, psutil.NoSuchProcess):
                continue
    return process.returncode, output


def told(output):
    """What the workers said of each part."""
    lines = (line[line.index("{") :] for line in output.splitlines() if "'programs'" in line)
    return [json.loads(line.replace("'", '"')) for line in lines]


def assert_complete(source, out):
    """Every id is there once, with the score that the text has alone; nothing half written."""
    rows = [json.loads(line) for line in source.read_bytes().splitlines()]
    files = sorted(out.iterdir())
    assert [f.suffix for f in files] == [".jsonl"] * -(-len(rows) // PART)
    found = [json.loads(line) for f in files for line in f.read_text().splitlines()]
    assert sorted(x["id"] for x in found) == sorted(x["id"] for x in rows)
    scores = {x["id"]: x["score"] for x in found}
    model, tokenizer = anyjax.from_pretrained(MODEL), tokenizer_of(MODEL)
    assert {k for k, x in scores.items() if x is None} == {"text-0", "text-1"}
    for row in rows[2 :: len(rows) // 3]:
        ids = np.array([tokenizer(row["text"]).input_ids[: SIZES[-1]]])
        loss = float(model(input_ids=ids, labels=ids, use_cache=False).loss)
        assert scores[row["id"]] == pytest.approx(-loss, rel=1e-4)


def tokenizer_of(model):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model)


@pytest.mark.conformance
def test_two_processes_and_again_what_is_missing(source, tmp_path):
    """One is killed: the launcher ends the other. One process alone does the rest, and no more."""
    out, script = tmp_path / "out", EXAMPLES / "batch_inference.py"
    process = started("-m", "anyjax.parallel.launch", "-n", 2, script, MODEL, source, out)
    until_written(out, 2, process)
    python = [p for p in psutil.Process(process.pid).children() if p.is_running()]
    python[1].send_signal(signal.SIGKILL)
    code, output = ended(process)
    assert code == 128 + signal.SIGKILL and "process 1 was ended by SIGKILL" in output
    before = {f.name: f.stat().st_mtime_ns for f in out.glob("*.jsonl")}
    assert 2 <= len(before) < 12
    code, output = ended(started(script, MODEL, source, out))
    assert code == 0, output
    assert len(told(output)) == 12 - len(before)
    assert all((out / name).stat().st_mtime_ns == at for name, at in before.items())
    assert told(output)[-1]["programs"] <= len(SIZES)
    for left in out.glob("*.[0-9]*"):  # half a part of the process that was killed
        left.unlink()
    assert_complete(source, out)


@pytest.mark.conformance
def test_ray_starts_a_worker_again(source, tmp_path):
    """One of two workers is killed on the way; each compiles once for each bucket."""
    pytest.importorskip("ray", reason="the extra ray is not installed")
    out, script = tmp_path / "out", EXAMPLES / "batch_inference_ray.py"
    process = started(script, MODEL, source, out)
    until_written(out, 2, process)
    workers = [p for p in psutil.Process(process.pid).children(recursive=True) if mapper(p)]
    assert len(workers) == 2
    workers[0].kill()
    code, output = ended(process)
    assert code == 0, output
    seen = told(output)
    assert sorted(x["part"] for x in seen) == list(range(12))
    assert all(x["programs"] <= len(SIZES) for x in seen), seen
    print(f"{len({x['worker'] for x in seen})} workers, programs: {[x['programs'] for x in seen]}")
    for left in out.glob("*.[0-9]*"):
        left.unlink()
    assert_complete(source, out)


def mapper(process):
    """Whether it is a worker that runs the model."""
    try:
        return "MapWorker" in " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False


def until_written(out, count, process):
    """Waits for some parts."""
    end = time.monotonic() + WAIT
    while len([*out.glob("*.jsonl")]) < count:
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < end
        time.sleep(0.01)
