"""A hundred conversions, and calls of their models, leave nothing behind."""

import gc
import os
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import torch

import anyjax
from tests.properties import subjects

TIMES = 100


def objects():
    """Returns (arrays of JAX, modules of torch, objects of our classes) that are alive."""
    gc.collect()
    kinds = [type(x) for x in gc.get_objects()]
    return (
        len(jax.live_arrays()),
        sum(issubclass(kind, torch.nn.Module) for kind in kinds),
        sum(str(kind.__module__).startswith("anyjax.") for kind in kinds),
    )


def resident():
    """Returns the bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def grown(work, times=TIMES):
    """Returns how many more objects and bytes there are after the later ones of all rounds."""
    for _ in range(times // 10):
        work()
    before, size = objects(), resident()
    for _ in range(times):
        work()
    after = objects()
    return [b - a for a, b in zip(before, after)], resident() - size


class Net(torch.nn.Module):
    """A layer whose weights are seen in a process's memory, with a hook of its own."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(512, 512)
        self.register_forward_hook(lambda module, args, out: out * 2)

    def forward(self, x):
        return self.layer(x)


WEIGHTS = TIMES * 512**2 * 4
linux = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")


@linux
def test_conversions_and_first_calls():
    module, x = Net().eval(), np.ones((2, 512), np.float32)
    count, size = grown(lambda: anyjax.from_torch(module)(x))
    assert count == [0, 0, 0]
    assert size < WEIGHTS / 4  # XLA's and the allocator's memory comes in pieces


@linux
def test_new_modules():
    x = np.ones((2, 512), np.float32)
    trace = lambda model: jax.eval_shape(lambda p: model.apply(p, x), model.params)
    count, size = grown(lambda: trace(anyjax.from_torch(Net().eval())))
    assert count == [0, 0, 0]
    assert size < WEIGHTS / 4


@linux
@pytest.mark.parametrize("subject", subjects.TORCH, indirect=True)
@pytest.mark.conformance
def test_traces_of_a_type(subject):
    """A fifth of the conversions for a whole type, which takes long enough."""

    def work():
        model = subject.convert()
        jax.eval_shape(subject.function(model), model.params, subject.arrays)

    count, _ = grown(work, TIMES // 5)
    assert count == [0, 0, 0]


@linux
@pytest.mark.sample(every=20)
def test_calls(subject):
    jax.block_until_ready(subject.out)
    count, size = grown(lambda: jax.block_until_ready(subject.call()))
    assert count == [0, 0, 0]
    assert size < 2**24
