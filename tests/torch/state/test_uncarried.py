"""Changes of a module that no state carries: said where the next call computes something else."""

import collections
import dataclasses
import types
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import anyjax
from anyjax.errors import StateDropped

pytestmark = pytest.mark.sample(every=4)

X = np.ones((1, 2), np.float32)


class Stateful(nn.Module):
    """One attribute, and what forward does with it."""

    def __init__(self, start, step):
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
        self.memory = start(self)
        self.step = step

    def forward(self, x):
        return self.step(self, x)


@dataclasses.dataclass
class Config:
    mode: str = "a"


def toggled(self, x):
    out = x * 2 if self.memory == "a" else x * 3
    self.memory = "b" if self.memory == "a" else "a"
    return out


def replaced_in(holder):
    def step(self, x):
        factor = 2 if holder(self).mode == "a" else 3
        holder(self).mode = "b"
        return x * factor

    return step


def begun(self, x):
    if self.memory is None:
        self.memory = types.SimpleNamespace()
        return x
    return x * 2


def appended(self, x):
    self.memory.append("call")
    return x * len(self.memory)


def appended_tensor(self, x):
    self.memory.append(("mean", x.mean()))
    return x * len(self.memory)


def counted(self, x):
    self.memory["calls"] = self.memory.get("calls", 0) + 1
    return x * self.memory["calls"]


def taken(self, x):
    return x * len(self.memory.popleft())


def forgotten(self, x):
    self.memory.pop("factor", None)
    return x * (2 if self.memory else 3)


def added(self, x):
    self.memory.add(len(self.memory))
    return x * len(self.memory)


def exchanged(self, x):
    out = self.memory(x)
    self.memory = self.second if self.memory is self.first else self.first
    return out


def emptied(self, x):
    out = x if self.memory is None else x * 2
    self.memory = None
    return out


OTHER_PROGRAMS = {
    "a string": (lambda self: "a", toggled),
    "a field of a dataclass": (lambda self: Config(), replaced_in(lambda self: self.memory)),
    "a field in a list": (lambda self: [Config()], replaced_in(lambda self: self.memory[0])),
    "None that becomes an object": (lambda self: None, begun),
    "a list of strings": (lambda self: [], appended),
    "a list of pairs": (lambda self: [], appended_tensor),
    "a dict": (lambda self: {}, counted),
    "a Counter": (lambda self: collections.Counter(), counted),
    "a deque that shrinks": (lambda self: collections.deque(["ab", "a"]), taken),
    "a key that goes": (lambda self: {"factor": 1, "other": 2}, forgotten),
    "a set": (lambda self: set(), added),
    "a submodule": (lambda self: self.first, exchanged),
    "a number that becomes None": (lambda self: 1, emptied),
}
SAME_PROGRAMS = {
    "a log": (lambda self: [], lambda self, x: self.memory.append("call") or x * 2),
    "a set that is not read": (lambda self: set(), lambda self, x: self.memory.add("call") or x),
    "a setting computed anew": (
        lambda self: None,
        lambda self, x: setattr(self, "memory", {"k": "v"}) or x,
    ),
    "an equal object": (
        lambda self: "a",
        lambda self, x: setattr(self, "memory", "".join("a")) or x,
    ),
    "outputs of a hook": (lambda self: {}, lambda self, x: self.memory.update(out=x * 2) or x),
    "a submodule chosen anew": (
        lambda self: self.first,
        lambda self, x: setattr(self, "memory", self.second) or self.memory(x),
    ),
}


def said(module, calls=2):
    """The warnings of a Model's calls."""
    model = anyjax.from_torch(module)
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        outputs = [model(X) for _ in range(calls)]
    assert all(np.array_equal(out, outputs[0]) for out in outputs)
    return [str(x.message) for x in record if x.category is StateDropped]


@pytest.mark.parametrize("case", OTHER_PROGRAMS)
def test_a_change_that_the_next_call_would_miss_is_said(case):
    module = Stateful(*OTHER_PROGRAMS[case])
    (text,) = said(module)
    assert "memory" in text and "argument of forward" in text
    with torch.no_grad():
        first = module(torch.tensor(X))
        assert not torch.equal(module(torch.tensor(X)), first)  # so torch does go on from there


@pytest.mark.parametrize("case", SAME_PROGRAMS)
def test_a_change_that_makes_no_difference_is_not(case):
    module = Stateful(*SAME_PROGRAMS[case])
    assert said(module) == []
    with torch.no_grad():
        first = module(torch.tensor(X))
        assert torch.equal(module(torch.tensor(X)), first)


class Mode(nn.Module):
    def __init__(self):
        super().__init__()
        self.mode = "a"

    def forward(self, x):
        out = x * 2 if self.mode == "a" else x * 3
        self.mode = "b"
        return out


def test_the_line_is_named_and_also_inside_of_jit():
    module = nn.Sequential(nn.ReLU(), Mode())
    (text,) = said(module)
    line = Mode.forward.__code__.co_firstlineno + 2
    assert f"1.mode ({__file__}:{line})" in text
    import jax

    model = anyjax.from_torch(module)
    with pytest.warns(StateDropped, match=r"1\.mode"):
        jax.jit(model.apply)(model.params, X)


def test_the_module_is_left_as_it_was():
    module = Stateful(*OTHER_PROGRAMS["a set"])
    said(module)
    assert module.memory == set()
    module = Stateful(*OTHER_PROGRAMS["a submodule"])
    said(module)
    assert module.memory is module.first


class Gradients(nn.Module):
    def __init__(self, cleared):
        super().__init__()
        self.weight, self.cleared = nn.Parameter(torch.ones(2)), cleared

    def forward(self, x):
        if self.cleared:
            self.weight.grad = None
        (self.weight * x).sum().backward()
        return self.weight.grad * 1


def test_gradients_that_backward_adds_up():
    with pytest.warns(StateDropped, match=r"forward changes weight\.grad"):
        np.testing.assert_array_equal(anyjax.from_torch(Gradients(False))(X[0]), X[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(anyjax.from_torch(Gradients(True))(X[0]), X[0])


def stepped(self, x):
    (self.weight * x).sum().backward()
    self.optimizer.step()
    return self.weight.detach() * 1


class Steps(nn.Module):
    """Its forward is a function around the class, which knows the optimizer."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.optimizer = torch.optim.SGD([self.weight], lr=0.1, momentum=0.9)

    def forward(self, x):
        return stepped(self, x)


class Hidden(Steps):
    def forward(self, x):
        return getattr(self, "step" + "ped")(x)

    stepped = stepped


def test_an_optimizer_that_a_function_knows():
    model, module = anyjax.from_torch(Steps()), Steps()
    state = model.state
    for _ in range(3):
        out, state = model.apply({}, X[0], state=state, mutable=True)
        np.testing.assert_allclose(out, module(torch.from_numpy(X[0])), rtol=1e-6)


def test_an_optimizer_that_nobody_knows():
    with pytest.raises(StateDropped, match=r"momentum_buffer|weight\.grad"):
        anyjax.from_torch(Hidden())(X[0])
