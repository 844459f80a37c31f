"""Eight threads that convert, call and fail at once."""

import contextlib
import sys
import threading

import jax
import numpy as np
import pytest
from torch.nn.modules.module import register_module_forward_pre_hook

from anyjax.torch.core import private
from tests.properties import state, subjects
from tests.sampling import further

GROUPS = ["bert resnet", "llama mixtral mamba", "whisper detr wav2vec2", "gemma2 llava t5"]
WAIT = 300


class Failed(Exception):
    """What half of the threads raise."""


@contextlib.contextmanager
def switching_often():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


def in_threads(work, count=8):
    """Runs ``work(i)`` in threads that start together; returns what they raised."""
    start, errors = threading.Barrier(count), []

    def run(i):
        start.wait()
        try:
            work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(count)]
    with switching_often():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
    assert not any(thread.is_alive() for thread in threads), "the threads wait for each other"
    return errors


@pytest.mark.parametrize("group", [GROUPS[0], *further(*GROUPS[1:])])
def test_eight_threads(group):
    """Each converts a model and calls it, and one that all share; odd ones fail before."""
    all_subjects = [subjects.build(name) for name in group.split()]
    wants = [subject.out for subject in all_subjects]
    shared = [subject.convert() for subject in all_subjects]
    modules = [subject.module for subject in all_subjects]
    before = [*map(state.of_module, modules)], state.of_process()
    failing, same = threading.local(), np.testing.assert_array_equal

    def fail(module, args):
        failing.count = getattr(failing, "count", 0) - 1
        if failing.count == 0:
            raise Failed

    def work(i):
        subject, want = all_subjects[i % len(modules)], wants[i % len(modules)]
        model = subject.convert()
        if i % 2:
            failing.count = 5
            with pytest.raises(Failed):
                subject.call(model)
        jax.tree.map(same, subject.call(shared[i % len(modules)]), want)
        jax.tree.map(same, subject.call(model), want)
        assert not [x for x in model.source.code.modules() if private.CALL_INSTEAD in vars(x)]

    with contextlib.closing(contextlib.ExitStack()) as stack:
        stack.callback(register_module_forward_pre_hook(fail).remove)
        errors = in_threads(work)
    assert errors == []
    assert ([*map(state.of_module, modules)], state.of_process()) == before
