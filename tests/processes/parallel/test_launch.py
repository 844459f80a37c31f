"""The launcher: environments, lines, exit codes; one that dies takes the others with it."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from anyjax.parallel import launch

pytestmark = [pytest.mark.processes, pytest.mark.sample(every=2)]

PLACE = """
    import jax, sys
    jax.distributed.initialize()
    print(jax.process_index(), jax.process_count(), jax.device_count(), *sys.argv[1:])
"""
ONE_DIES = """
    import os, signal, sys, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as under JAX
    print("started", flush=True)
    time.sleep(0.5)
    if os.environ["OMPI_COMM_WORLD_RANK"] == "1":
        {}
    time.sleep(60)
"""
SLEEPS = """
    import time
    print("started", flush=True)
    time.sleep(1)
    print("ended")
"""
INTERRUPTED = """
    import time
    try:
        print("started", flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        raise SystemExit(5)
"""


def script(folder, text):
    """A file with this program."""
    path = folder / "script.py"
    path.write_text(textwrap.dedent(text))
    return str(path)


def started(*command):
    command = [sys.executable, "-m", "anyjax.parallel.launch", *command]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_jax_finds_its_place(tmp_path):
    """A script that knows JAX alone, and its arguments; each line has the process in front."""
    process = started("-n", "2", "--devices", "3", script(tmp_path, PLACE), "--flag", "value")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    lines = sorted(x for x in output.splitlines() if "Gloo" not in x and x.startswith("["))
    assert lines == ["[0] 0 2 6 --flag value", "[1] 1 2 6 --flag value"]


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        ("raise SystemExit(7)", 7, "process 1 failed (7)"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, "process 1 was ended by SIGKILL"),
    ],
)
def test_one_dies(how, code, said, tmp_path):
    """The others are stopped soon, even if they do not want to be."""
    begin = time.monotonic()
    process = started("-n", "3", script(tmp_path, ONE_DIES.format(how)))
    output, _ = process.communicate(timeout=60)
    assert process.returncode == code
    assert f"[launch] {said}; stopping the 2 that still run" in output
    assert time.monotonic() - begin < 0.5 + launch.GRACE + 15  # imports


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_are_handed_on(number, tmp_path):
    process = started("-n", "2", script(tmp_path, INTERRUPTED))
    seen = "".join(process.stdout.readline() for _ in range(2))
    assert "[0] started" in seen and "[1] started" in seen
    os.kill(process.pid, number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert f"{number.name}: handed on to all processes" in output
    if number == signal.SIGINT:
        assert "[0] interrupted" in output and "[1] interrupted" in output


def test_what_is_ignored_stays_so(tmp_path):
    """``nohup`` outlives its terminal."""
    ignoring = "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    command = ["-m", "anyjax.parallel.launch", "-n", "1", script(tmp_path, SLEEPS)]
    start = f"{ignoring}; os.execv(sys.executable, [sys.executable, *{command!r}])"
    process = subprocess.Popen([sys.executable, "-c", start], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "[0] started\n"
    os.kill(process.pid, signal.SIGHUP)
    assert process.communicate(timeout=60)[0] == "[0] ended\n" and process.returncode == 0


def test_no_process_is_an_error(capsys):
    with pytest.raises(SystemExit):
        launch.main(["-n", "0", "script.py"])
    assert "1 at least" in capsys.readouterr().err


FAILS = """
    import anyjax
    anyjax.parallel.initialize()
    import jax
    print("begun", jax.process_count(), flush=True)
    if jax.process_index() == 1:
        raise KeyError("a mistake")
    jax.distributed.shutdown()  # waits for the other
"""


def test_an_exception_ends_the_job(tmp_path):
    """At once, although JAX's way out would wait minutes for the others."""
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(FAILS))
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "anyjax.parallel.launch", "-n", "2", str(path)],
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 1 and "KeyError: 'a mistake'" in done.stdout
    assert done.stdout.count("begun 2") == 2
    assert "process 1 failed (1); stopping the 1 that still run" in done.stderr
    assert time.monotonic() - begin < 100
