"""Learning rates that a schedule changes, in one program for all steps."""

from functools import partial

import jax
import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler as schedules

import anyjax
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=4)

SCHEDULES = {
    "steps": lambda o: schedules.MultiStepLR(o, [3, 7]),
    "cosine": lambda o: schedules.CosineAnnealingLR(o, 12),
    "restarts": lambda o: schedules.CosineAnnealingWarmRestarts(o, 4),
    "one cycle": lambda o: schedules.OneCycleLR(o, 0.2, total_steps=40),
    "lambda": lambda o: schedules.LambdaLR(o, lambda n: min(1.0, (n + 1) / 5)),
    "a sequence": lambda o: schedules.SequentialLR(
        o, [schedules.LinearLR(o, 0.1, total_iters=4), schedules.ExponentialLR(o, 0.9)], [4]
    ),
    "a chain": lambda o: schedules.ChainedScheduler(
        [schedules.ConstantLR(o, 0.5, 3), schedules.ExponentialLR(o, 0.9)]
    ),
    "a plateau": lambda o: schedules.ReduceLROnPlateau(o, patience=1, factor=0.5),
}


def stepping(name, kind):
    w = torch.nn.Parameter(torch.ones(3))
    optimizer = kind([w], lr=0.1)
    schedule = SCHEDULES[name](optimizer)

    def step(x):
        optimizer.zero_grad()
        loss = ((w * x) ** 2).sum() + 1
        loss.backward()
        optimizer.step()
        schedule.step(*([loss.detach()] if name == "a plateau" else []))
        (group,) = optimizer.param_groups
        return loss.detach(), group["lr"]

    return step


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("kind", [partial(torch.optim.SGD, momentum=0.5), torch.optim.Adam])
def test_as_torch(name, kind):
    x = np.array([1.0, 2.0, 0.0], np.float32)
    step = stepping(name, kind)
    want = [[float(v) for v in step(torch.from_numpy(x))] for _ in range(20)]
    model = anyjax.from_torch(stepping(name, kind))
    run = jax.jit(partial(model.apply, mutable=True))
    state, got = model.state, []
    for _ in range(20):
        out, state = run({}, x, state=state)
        got.append([*map(float, out)])
    assert_close(np.array(got), np.array(want, np.float32), reduction=10000)
    assert run._cache_size() <= 2
