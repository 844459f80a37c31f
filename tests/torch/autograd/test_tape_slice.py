"""The part of a tape between tensors: what it reads, and what it does not know."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import Unsupported
from anyjax.torch.autograd.tape import Tape
from anyjax.torch.autograd.tape_slice import Part
from anyjax.torch.core.tensor import GRADIENT, JaxTensor
from tests.tolerance import assert_close


def tensor(value=1.0):
    return JaxTensor(jnp.full(2, value), origins=GRADIENT)


def test_only_what_leads_there_is_run():
    x, other, aside, y, unused = tensor(2.0), tensor(3.0), tensor(), tensor(), tensor()
    other.holder = lambda: None
    tape, ran = Tape(), []
    step = lambda name, f: lambda *arrays: (ran.append(name), [f(*arrays)])[1]
    tape.note(step("aside", lambda a: a), [x], [aside])
    tape.note(step("way", lambda a, b: a * b), [x, other], [y])
    part = Part(tape, [y], [x, unused])
    assert part.used == [True, False]
    assert part.free == [other]
    (got,) = part([x.array * 5, unused.array], [other.array])
    assert got.tolist() == [30.0, 30.0]
    assert ran == ["way"]


def test_what_nobody_recorded_is_refused():
    def function(x):
        z = x.clone().requires_grad_()
        turned = (z * 2).T
        turned[0] = 3
        y = turned.as_strided((2, 3), (3, 1)) * z
        return torch.autograd.grad(y.sum(), z)[0]

    with pytest.raises(Unsupported, match="forward takes itself") as caught:
        anyjax.from_torch(function)(np.ones((2, 3), np.float32))
    assert "test_tape_slice.py" in caught.value.where


def test_gradients_in_a_loop_that_values_end():
    def function(x):
        t, y = 0.1 * x.sum(), x
        while y.norm() < 10:
            with torch.enable_grad():
                z = y.detach().requires_grad_()
                (slope,) = torch.autograd.grad((t.cos() * z**2).sum(), z)
            y, t = y + slope, t + 0.1
        return y

    x = np.linspace(-1, 1, 6, dtype=np.float32)
    expected = function(torch.from_numpy(x))
    assert_close(jax.jit(anyjax.from_torch(function).apply)({}, x), expected, reduction=20)


def test_gradients_of_a_loop_by_what_was_there_before_are_refused():
    def function(x):
        weight = x.detach().requires_grad_()
        y, slopes = 2 * weight, torch.zeros(6)
        while y.norm() < 10:
            (slope,) = torch.autograd.grad((y**2).sum(), weight, allow_unused=True)
            slopes = slopes + (0 if slope is None else slope)
            y = y + slopes
        return y

    with pytest.raises(Unsupported, match="a gradient that forward takes itself"):
        jax.jit(anyjax.from_torch(function).apply)({}, np.ones(6, np.float32))
