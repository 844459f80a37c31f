"""A training step of torch as it is: a function of its state, equal to torch's after 20 steps."""

import copy
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

import anyjax
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=4)

rng = np.random.default_rng(0)
XS = rng.standard_normal((20, 8, 4)).astype(np.float32)
YS = XS.sum(-1, keepdims=True)
CASES = {}


def case(function):
    """A function that makes (step, modules by name)."""
    CASES[function.__name__] = function
    return function


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def usual(make, schedule=None, clip=False):
    net = network()
    optimizer = make(net.parameters())
    rate = schedule(optimizer) if schedule else None

    def step(x, y):
        optimizer.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        if rate:
            rate.step()
        return loss

    return step, {"net": net}


OPTIMIZERS = {
    "SGD": partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "SGD foreach": partial(torch.optim.SGD, lr=0.1, foreach=True),
    "Adam": partial(torch.optim.Adam, lr=0.01, amsgrad=True),
    "AdamW foreach": partial(torch.optim.AdamW, lr=0.01, foreach=True),
    "AdamW fused": partial(torch.optim.AdamW, lr=0.01, fused=True),
    "RMSprop": partial(torch.optim.RMSprop, lr=0.01),
    "RAdam": partial(torch.optim.RAdam, lr=0.01),
    "ASGD": partial(torch.optim.ASGD, lr=0.1),
    "NAdam": partial(torch.optim.NAdam, lr=0.01),
    "Adagrad": partial(torch.optim.Adagrad, lr=0.1),
}
for name, make in OPTIMIZERS.items():
    CASES[name] = partial(usual, make, partial(lr_scheduler.StepLR, step_size=6), clip=True)


@case
def two_optimizers():
    """A GAN's."""
    torch.manual_seed(0)
    maker = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    judge = nn.Sequential(nn.Linear(1, 8), nn.LeakyReLU(), nn.Linear(8, 1))
    first = torch.optim.Adam(maker.parameters(), 1e-2, betas=(0.5, 0.999))
    second = torch.optim.Adam(judge.parameters(), 1e-2)
    loss = nn.BCEWithLogitsLoss()
    yes, no = torch.ones(8, 1), torch.zeros(8, 1)

    def step(x, real):
        fake = maker(x)
        second.zero_grad()
        found = loss(judge(real), yes) + loss(judge(fake.detach()), no)
        found.backward()
        second.step()
        first.zero_grad()
        fooled = loss(judge(fake), yes)
        fooled.backward()
        first.step()
        return found.item(), fooled.item()

    return step, {"maker": maker, "judge": judge}


class Trainer:
    """Keeps everything in attributes: a network with statistics, its average, a count."""

    def __init__(self):
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.Linear(8, 1))
        self.optimizer = torch.optim.AdamW(self.net.parameters(), 1e-2)
        self.average = copy.deepcopy(self.net).requires_grad_(False)
        self.count = 0

    def step(self, x, y):
        loss = ((self.net(x) - y) ** 2).mean()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            for old, new in zip(self.average.parameters(), self.net.parameters()):
                old.mul_(0.9).add_(new, alpha=0.1)
        self.count += 1
        return loss, self.count


@case
def a_trainer():
    trainer = Trainer()
    return trainer.step, {"self.net": trainer.net, "self.average": trainer.average}


@case
def every_second_call():
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    count = 0

    def step(x, y):
        nonlocal count
        loss = ((net(x) - y) ** 2).mean() / 2
        loss.backward()
        count += 1
        if count % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()
        return loss

    return step, {"net": net}


@case
def several_batches_in_a_call():
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def step(x, y):
        for some, wanted in zip(x.chunk(2), y.chunk(2)):
            loss = ((net(some) - wanted) ** 2).mean() / 2
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step, {"net": net}


@case
def groups_and_a_tensor_of_nobody():
    net, offset = network(), torch.zeros(1, requires_grad=True)
    groups = [
        {"params": net[0].parameters(), "lr": 0.1},
        {"params": net[2].parameters()},
        {"params": [offset], "weight_decay": 0.1},
    ]
    optimizer = torch.optim.Adam(groups, lr=0.01)
    rate = lr_scheduler.LambdaLR(optimizer, lambda count: 0.9**count)

    def step(x, y):
        optimizer.zero_grad()
        loss = ((net(x) + offset - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        rate.step()
        return loss, rate.get_last_lr()[0]

    return step, {"net": net}


@case
def a_rate_set_by_hand():
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def step(x, y):
        for group in optimizer.param_groups:
            group["lr"] *= 0.9

        def closure():
            optimizer.zero_grad()
            loss = ((net(x) - y) ** 2).mean()
            loss.backward()
            return loss

        return optimizer.step(closure)

    return step, {"net": net}


@case
def without_an_optimizer():
    net = network()

    def step(x, y):
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        with torch.no_grad():
            for p in net.parameters():
                p -= 0.1 * p.grad
                p.grad = None
        return loss

    return step, {"net": net}


def value(tree):
    number = lambda x: x.item() if isinstance(x, torch.Tensor) else float(x)
    return [number(x) for x in jax.tree.leaves(tree)]


@pytest.mark.parametrize("name", CASES)
def test_twenty_steps(name):
    step, modules = CASES[name]()
    want = [value(step(*map(torch.from_numpy, pair))) for pair in zip(XS, YS)]
    after = {
        f"{name}.{k}": x.numpy() for name, m in modules.items() for k, x in m.state_dict().items()
    }
    model = anyjax.from_torch(CASES[name]()[0])
    run = jax.jit(partial(model.apply, mutable=True))
    state, got = model.state, []
    for x, y in zip(XS, YS):
        out, new = run(model.params, x, y, state=state)
        state = {**state, **new}
        got.append(value(out))
    assert_close(np.array(got), np.array(want, np.float32), reduction=1000)
    for name, wanted in after.items():
        found = state[name] if name in state else model.params[name]
        assert_close(found, wanted, reduction=1000, scale=1.0)
    assert run._cache_size() <= 2  # what an optimizer makes in its first step comes to the state


def test_many_steps_are_one_program():
    step, _ = CASES["Adam"]()
    model = anyjax.from_torch(step)
    assert not model.params
    _, state = model.apply({}, XS[0], YS[0], mutable=True)

    def body(state, batch):
        loss, state = model.apply({}, *batch, state=state, mutable=True)
        return state, loss

    state, losses = jax.jit(lambda s: jax.lax.scan(body, s, (XS[1:], YS[1:])))(state)
    want = [step(*map(torch.from_numpy, pair)).item() for pair in zip(XS, YS)][1:]
    assert_close(losses, np.array(want, np.float32), reduction=1000)


def test_back_to_torch_in_the_middle():
    whole, stopped = CASES["Adam"](), CASES["Adam"]()
    for pair in zip(XS[:10], YS[:10]):
        want = whole[0](*map(torch.from_numpy, pair))
    model = anyjax.from_torch(stopped[0])
    for pair in zip(XS[:5], YS[:5]):
        _, state = model.apply({}, *pair, mutable=True)
        model = anyjax.Model({}, {**model.state, **state}, model.source)
    model.to_torch()
    for pair in zip(XS[5:10], YS[5:10]):
        got = stopped[0](*map(torch.from_numpy, pair))
    assert_close(got.detach(), want.detach(), reduction=1000)
    for one, other in zip(stopped[1]["net"].parameters(), whole[1]["net"].parameters()):
        assert_close(one.detach(), other.detach(), reduction=1000)


def test_a_state_that_was_there_before():
    """An optimizer that has stepped in torch goes on where it was."""
    whole, begun = CASES["SGD"](), CASES["SGD"]()
    for pair in zip(XS[:6], YS[:6]):
        want = whole[0](*map(torch.from_numpy, pair))
    for pair in zip(XS[:5], YS[:5]):
        begun[0](*map(torch.from_numpy, pair))
    model = anyjax.from_torch(begun[0])
    assert "optimizer.net.0.weight.momentum_buffer" in model.state
    got, _ = model.apply(model.params, XS[5], YS[5], mutable=True)
    assert_close(got, want.detach(), reduction=1000)


def test_the_users_own_are_left_alone():
    step, modules = CASES["Adam"]()
    optimizer = dict(zip(step.__code__.co_freevars, step.__closure__))["optimizer"].cell_contents
    before = [p.detach().clone() for p in modules["net"].parameters()]
    model = anyjax.from_torch(step)
    jax.jit(partial(model.apply, mutable=True))({}, XS[0], YS[0])
    assert not optimizer.state
    for p, old in zip(optimizer.param_groups[0]["params"], before):
        assert p.grad is None
        assert type(p) is nn.Parameter and jnp.array_equal(p.detach().numpy(), old.numpy())


def test_an_optimizer_that_forward_does_not_know_is_somebody_elses():
    class Agent(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)
            self.optimizer = torch.optim.Adam(self.parameters())

        def forward(self, x):
            return self.layer(x)

        def learn(self, x):
            self.forward(x).mean().backward()
            self.optimizer.step()

    model = anyjax.from_torch(Agent())
    assert sorted(model.params) == ["layer.bias", "layer.weight"] and not model.state
