"""The part of a tape between tensors: what it reads, and what it does not know."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import Unsupported
from anyjax.torch.autograd.tape import Tape
from anyjax.torch.autograd.tape_slice import Part
from anyjax.torch.core.tensor import GRADIENT, JaxTensor


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
