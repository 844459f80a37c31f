import copy
import functools
import io
import sys
import threading
import weakref
from collections import OrderedDict

import jax
import numpy as np
import pytest
import torch
from torch import nn

import anyjax
from anyjax.torch.engine.session import LOCK
from anyjax.torch.objects.copies import shell

pytestmark = pytest.mark.sample(every=4)

ONES = np.ones((2, 4), np.float32)


class Keeps(nn.Module):
    """Has weights in many places."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.norm, self.recurrent = nn.BatchNorm1d(4), nn.LSTM(4, 4)
        self.hidden, self.count, self.seen = torch.zeros(4), 0, []

    def forward(self, x):
        for layer in self.layers:
            x = layer(x) + self.hidden
        x, _ = self.recurrent(self.norm(x))
        self.hidden, self.count = x[0], self.count + 1
        self.seen.append(x)
        return x


class Own:
    """A user's object."""

    def __init__(self, **held):
        self.__dict__.update(held)


def copied(module):
    """The copy of a module, whose weights are twice as large."""
    new, copies = shell(module)
    for child in [x for _, x in copies.of.values() if isinstance(x, nn.Module)]:
        for name, weight in child._parameters.items():
            child._parameters[name] = weight.detach() * 2
    return new


def test_tensors_are_shared_and_nothing_else():
    net = Keeps()
    new, _ = shell(net)
    assert all(a is b for a, b in zip(net.parameters(), new.parameters()))
    assert not {*map(id, net.modules())} & {*map(id, new.modules())}
    assert new.seen is not net.seen and new.layers[0]._parameters is not net.layers[0]._parameters
    assert all(a is b for a, b in zip(new.recurrent._flat_weights, net.recurrent._flat_weights))


def hooked(net):
    net.weight = net.layer.weight
    net.layer.register_forward_hook(lambda m, args, out: out + net.layer.weight.sum())


def method(net):
    net.layer.forward = net.other.forward


def partial(net):
    net.layer.forward = functools.partial(nn.Linear.forward, net.other)


def unregistered(net):
    net.__dict__["layer"] = Call({"deep": [(Own(net=net._modules.pop("layer")),)]})


def weak(net):
    owner = weakref.ref(net)
    net.layer.forward = lambda x: owner().other(x) @ owner().layer.weight


def keyed(net):
    table = {net.layer: net.other}
    forward = net.layer.forward
    net.layer.forward = lambda x: table[net.layer](forward(x))


class Call(Own):
    """Calls the layer that it holds."""

    def __init__(self, held):
        super().__init__(held=held)

    def __call__(self, x):
        return self.held["deep"][0][0].net(x)


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.other = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x)


@pytest.mark.parametrize("change", [hooked, method, partial, unregistered, weak, keyed])
def test_whatever_leads_to_a_module_leads_to_its_copy(change):
    net = Two()
    change(net)
    params = {id(p) for p in net.parameters()}
    with torch.no_grad():
        new, x = copied(net), torch.from_numpy(ONES)
        assert not torch.equal(new(x), net(x))
    assert params == {id(p) for p in net.parameters()}
    model = anyjax.from_torch(net)
    np.testing.assert_allclose(model(ONES), net(x).detach(), rtol=1e-5, atol=1e-5)
    torch_grads = torch.autograd.grad(net(x).sum(), [*net.parameters()], allow_unused=True)
    grads = jax.grad(lambda p: model.apply(p, ONES).sum())(model.params)
    for (name, _), grad in zip(net.named_parameters(), torch_grads):
        if name in grads and grad is not None:
            np.testing.assert_allclose(grads[name], grad, rtol=1e-4, atol=1e-4)


def test_a_function_around_modules_has_copies_around_it():
    net, calls, count = nn.Linear(4, 4), [], 0

    def forward(x):
        nonlocal count
        count += 1
        calls.append(1)
        return net(x)

    before = dict(net._parameters)
    model = anyjax.from_torch(forward)
    jax.eval_shape(model.apply, model.params, ONES)
    assert (count, calls) == (1, [1])  # what is no tensor is the caller's
    assert all(net._parameters[k] is v for k, v in before.items())


def test_removed_hooks_are_those_of_the_copy():
    net = nn.Linear(4, 4)
    net.handle = net.register_forward_pre_hook(lambda m, args: m.handle.remove())
    model = anyjax.from_torch(net)
    model(ONES)
    assert len(net._forward_pre_hooks) == 1


def test_classes_of_dicts_and_singletons():
    class Ordered(OrderedDict):
        pass

    sentinel = Own()
    net = nn.Module()
    net.a, net.b, net.c = Ordered(x=torch.ones(1)), Ordered(x=1), sentinel
    new, _ = shell(net)
    assert type(new.a) is Ordered and new.a is not net.a
    assert new.b is net.b and new.c is sentinel


def test_a_long_chain_of_modules():
    first = last = nn.Identity()
    for _ in range(2000):
        last.__dict__["next"] = nn.Identity()
        last = last.next
    new, copies = shell(first)
    assert new is not first and len(copies.of) > 2000


def working(function, until, errors):
    while not until.is_set():
        try:
            function()
        except Exception as error:
            errors.append(error)
            raise


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_other_threads_use_the_module_while_it_is_traced():
    net, x = Keeps().eval(), torch.ones(2, 4)
    stop, errors = threading.Event(), []

    def call():
        with torch.no_grad():
            assert net.norm(net.layers[0](x)).isfinite().all()
            assert type(net.recurrent(x)[0].sum().item()) is float

    def read():
        assert {*map(type, net.state_dict().values())} == {torch.Tensor}
        torch.save(net.state_dict(), io.BytesIO())
        assert not copy.deepcopy(net).training and not torch.compiler.is_compiling()
        torch.distributions.Normal(0.0, 1.0).log_prob(torch.ones(1)).item()

    def convert():
        model = anyjax.from_torch(net)
        jax.eval_shape(lambda p: model.apply(p, ONES, mutable=True), model.params)

    threads = [
        threading.Thread(target=working, args=(f, stop, errors)) for f in (call, read, convert)
    ]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    for thread in threads:
        thread.start()
    try:
        for training in (True, False, True, False, True, False):
            model = anyjax.from_torch(net)
            model = model.train() if training else model
            jax.eval_shape(lambda p, m=model: m.apply(p, ONES, mutable=True), model.params)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
    assert errors == []
    assert (net.count, net.seen, net.training) == (0, [], False) and not net.hidden.any()


def test_sources_of_two_threads_do_not_wait_for_each_other():
    one, other = (anyjax.from_torch(torch.nn.Linear(4, 2)).source for _ in range(2))
    for source in (one, other):
        vars(source).pop("slots")
    locked = threading.Event()

    def while_locked():
        with LOCK:
            locked.set()
            reader.join(0.2)  # it waits for the lock by then
            one.slots

    def read():
        locked.wait(10)
        other.slots

    reader = threading.Thread(target=read, daemon=True)
    holder = threading.Thread(target=while_locked, daemon=True)
    for thread in (reader, holder):
        thread.start()
    for thread in (reader, holder):
        thread.join(10)
    assert not reader.is_alive() and not holder.is_alive()
