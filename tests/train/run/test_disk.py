import signal
import threading
from pathlib import Path

import pytest

from anyjax.errors import NotWritten
from anyjax.train.run.disk import deferring_interrupts, prepare_folder, writing


def test_the_inner_path_is_named():
    inner, outer = (writing(Path(x)) for x in ("inner", "outer"))
    with pytest.raises(NotWritten, match="inner cannot be written"), outer, inner:
        raise ValueError("from tensorstore\nand more")


def test_other_errors_pass():
    with pytest.raises(KeyError), writing(Path("out")):
        raise KeyError


def test_what_a_killed_run_left_is_removed(tmp_path):
    (tmp_path / "4.orbax-checkpoint-tmp-1").mkdir()
    (tmp_path / "2").mkdir()
    prepare_folder(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["2"]


def test_errors_of_the_network_are_not_the_disks():
    with pytest.raises(ValueError, match="Gloo"), writing(Path("out")):
        raise ValueError("UNKNOWN: Gloo AllGather failed: Connection closed by peer")


def test_an_interruption_comes_after_what_is_written():
    done = []
    with pytest.raises(KeyboardInterrupt), deferring_interrupts():
        signal.raise_signal(signal.SIGINT)
        done.append("written")
    assert done == ["written"]
    with pytest.raises(KeyboardInterrupt), deferring_interrupts():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        done.append("never")
    assert done == ["written"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_and_calm():
    done = []

    def write():
        with deferring_interrupts():
            done.append("written")

    thread = threading.Thread(target=write)
    thread.start()
    thread.join()
    write()
    assert done == ["written"] * 2
