"""Jobs of several processes: each reads, feeds and saves its part; what is killed goes on."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file

pytest.importorskip("transformers")

import anyjax
from tests.processes.jobs import HEARTBEAT, WAIT, Job
from tests.processes.train import distributed
from tests.tolerance import assert_close

pytestmark = [pytest.mark.processes, pytest.mark.sample(every=2)]

PROMPT = np.array([[1, 5, 7]])
ROOT = Path(__file__).parents[3]
# what a row's loss sums: hidden sizes, positions, a batch; and that of the steps before it
SUMMED = 32 * 12 * distributed.SIZE


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return distributed.checkpoint(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def pair(folder, tmp_path_factory):
    """(what two processes of two devices returned, the folder that they trained in)."""
    run = tmp_path_factory.mktemp("pair")
    with Job(run / "job", distributed.everything, 2, folder, run / "run", devices=2) as job:
        return job.results(), run / "run"


@pytest.mark.parametrize("plan", ["fsdp", "tp"])
def test_each_process_reads_its_own_bytes(plan, pair):
    for result in pair[0]:
        told = result["loads"][plan]
        assert told["read"] == told["own"]
        assert told["own"] == (told["all"] - told["copied"]) / 2 + told["copied"]
        assert told["copied"] < 0.02 * told["all"]


def test_training_is_that_of_one_process(pair, folder):
    """The rows of both are one batch; the first writes the log and tells it."""
    (first, second), run = pair
    model = anyjax.from_pretrained(folder)
    batches = distributed.Batches(distributed.DATA, distributed.SIZE, key=3)
    mean = anyjax.train.evaluate(model, batches, distributed.model_loss)["loss"]
    assert_close(
        np.float32([first["mean"], second["mean"]]), np.float32([mean] * 2), reduction=SUMMED
    )
    want = alone(folder)
    assert second["losses"] == [] and len(want) == 12
    assert_close(np.float32(first["losses"]), np.float32(want), reduction=SUMMED)
    assert distributed.curve(run) == first["losses"]


def test_saved_once_and_whole(pair):
    results, run = pair
    whole, net = results[0]["weights"], results[0]["net"]
    assert [r["steps"] for r in results] == [12, 12]
    text = anyjax.generate(anyjax.from_pretrained(run / "checkpoint"), PROMPT, max_new_tokens=4)
    assert results[0]["text"] == results[1]["text"] == text.tolist()
    got = load_file(run / "checkpoint/model.safetensors")
    assert got.keys() == whole.keys()
    assert all((got[k] == whole[k]).all() for k in got)
    out = anyjax.load(run / "saved")(distributed.ONES)
    assert_close(out, distributed.ONES @ net.T, reduction=4)


def test_mistakes_are_told_in_every_process(pair):
    told = lambda i: {
        "no mesh": "the model lies in 1 of 2 processes",
        "restore to none": "the model lies in 1 of 2 processes",
        "other weights": "processes have different values of weight, bias",
        "other names": "processes have arrays of different names, this one "
        + ("weight, bias" if i else "weight"),
        "other number": "processes give different numbers",
        "batch of 9": "a batch of 9 rows cannot be divided among 2 processes",
        "batch of 2": "1 rows of process",
        "ragged": "processes give batches of different shapes",
        "ragged evaluation": "processes give batches of different shapes",
        "other prompts": "processes have different values of prompts",
        "other rows": "processes that must give the same rows give different ones",
        "other folder": "does not see what process 0 writes",
        **dict.fromkeys(
            ("save in place of else", "save a checkpoint there"),
            "process 0 has written nothing" if i else "holds something else",
        ),
        "restore another": f"own-{i}, in processes [1]",
        "other rng": "processes have different values of .rng",
    }
    for i, result in enumerate(pair[0]):
        missing = [k for k, v in told(i).items() if v not in result["errors"].get(k, "")]
        assert missing == ["other folder"] * (i == 0), result["errors"]
        assert "processes [1] cannot use it" in pair[0][0]["errors"]["other folder"]
        assert "all 2 processes give the same rows" in " ".join(result["warned"])


def alone(folder):
    """The losses of one device, and no mesh."""
    tx = distributed.optax.adam(1e-2)
    state = anyjax.train.TrainState.create(anyjax.from_pretrained(folder), tx)
    step, seen = anyjax.train.make_step(distributed.model_loss, tx), []
    batches = distributed.Batches(distributed.DATA, distributed.SIZE, key=3)
    note = lambda step, metrics: seen.append(metrics["loss"])
    anyjax.train.fit(state, step, batches, epochs=2, log=[note])
    return seen


@pytest.mark.conformance
@pytest.mark.parametrize("victim", [2, 0])
def test_killed_with_four_and_continued_with_two(victim, folder, tmp_path):
    """The others end within the heartbeat, with an error; two go on where the last save was."""
    run, args = tmp_path / "run", dict(epochs=8, every=4, slow=True)
    with Job(tmp_path / "four", work, 4, folder, run, args) as job:
        until_step(run, 20, job)
        os.kill(job.processes[victim].pid, signal.SIGKILL)
        killed = time.monotonic()
        for process in job.processes:
            process.join(WAIT)
        seconds = time.monotonic() - killed
        codes = [p.exitcode for p in job.processes]
        logs = [job.log(i) for i in range(4) if i != victim]
    assert codes.pop(victim) == -signal.SIGKILL and all(codes)
    assert seconds < HEARTBEAT + 10
    for log in logs:
        assert "another process of this job is gone" in log or "another task died" in log
    before = distributed.curve(run)
    assert 20 <= len(before) < 48
    with Job(tmp_path / "two", work, 2, folder, run, args) as job:
        seen = job.results()[0]
    after = distributed.curve(run)
    saved = 48 - len(seen)  # the step that it went on from
    assert saved % 4 == 0 and 12 <= saved <= len(before)
    assert after[:saved] == before[:saved] and after[saved:] == seen
    want = np.float32(distributed_alone(folder, tmp_path))
    print(f"ended after {seconds:.1f} s, went on from step {saved}")
    print(f"four then two: largest difference {np.abs(after - want).max():.2g}")
    assert_close(np.float32(after), want, reduction=SUMMED)


@pytest.mark.conformance
def test_one_falls_silent(folder, tmp_path):
    """Its machine hangs, and no connection breaks: the others miss its heartbeat and end."""
    run, args = tmp_path / "run", dict(epochs=20, slow=True)
    with Job(tmp_path / "two", work, 2, folder, run, args) as job:
        until_step(run, 6, job)
        os.kill(job.processes[1].pid, signal.SIGSTOP)
        stopped = time.monotonic()
        job.processes[0].join(WAIT)
        seconds = time.monotonic() - stopped
    assert HEARTBEAT / 2 < seconds < HEARTBEAT + 15
    assert "stopped sending heartbeats" in job.log(0) and job.processes[0].exitcode
    print(f"ended {seconds:.1f} s after the last heartbeat")


def work(folder, run, args):
    return distributed.train(distributed.begin(folder), run, **args)


def distributed_alone(folder, tmp_path):
    with Job(tmp_path / "one", work, 1, folder, None, dict(epochs=8)) as job:
        return job.results()[0]


def until_step(run, step, job):
    """Waits until that many steps are logged."""
    end = time.monotonic() + WAIT
    file = run / "metrics.jsonl"
    while not file.exists() or len(file.read_text().splitlines()) < step:
        assert time.monotonic() < end and all(p.is_alive() for p in job.processes), job.log(0)
        time.sleep(0.01)


def test_the_guide_is_what_shells_and_clusters_read():
    """Its manifests parse, and find each other; its scripts are bash, its names exist."""
    guide = (ROOT / "docs/guides/several-machines.md").read_text()
    blocks = {k: re.findall(rf"```{k}\n(.*?)```", guide, re.DOTALL) for k in ("yaml", "bash")}
    account, _, binding, service, job = yaml.safe_load_all(blocks["yaml"][0])
    pod = job["spec"]["template"]["spec"]
    assert service["metadata"]["name"] == pod["subdomain"] == job["metadata"]["name"]
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert (
        account["metadata"]["name"] == pod["serviceAccountName"] == binding["subjects"][0]["name"]
    )
    assert job["spec"]["completions"] == job["spec"]["parallelism"]
    for text in blocks["bash"]:
        assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0
    assert len(blocks["bash"]) == 2
    for path in re.findall(r"\((\.\./[\w/.]+)\)", guide):
        assert (ROOT / "docs/guides" / path).exists()
    lines = (ROOT / "examples/train_fsdp.py").read_text().splitlines()
    assert f"{len(lines)} lines that run unchanged" in guide


@pytest.mark.conformance
def test_the_example_is_the_same_run_in_two_processes(folder, tmp_path):
    """Started by the launcher, and alone."""
    text, model = tmp_path / "text.txt", ROOT / "examples/tiny-llama"
    text.write_text("".join(p.read_text() for p in sorted((ROOT / "anyjax/train").glob("*.py"))))
    curves = []
    for count in (1, 2):
        out = tmp_path / str(count)
        command = ["-m", "anyjax.parallel.launch", "-n", str(count)] if count > 1 else []
        script = [ROOT / "examples/train_fsdp.py", model, text, out]
        env = os.environ | {"PYTHONPATH": str(ROOT), "JAX_NUM_CPU_DEVICES": "1"}
        done = subprocess.run(
            [sys.executable, *command, *script], env=env, capture_output=True, text=True
        )
        assert f"{count} processes, {count} devices: 60 steps" in done.stdout, done.stderr
        curves.append(distributed.curve(out))
        saved = anyjax.from_pretrained(out / "model")
        assert saved(distributed.IDS[:1]).logits.shape[:2] == (1, 12)
    assert_close(*map(np.float32, curves), reduction=128 * 64 * 16)
