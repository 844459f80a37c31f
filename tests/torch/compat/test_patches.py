"""Patches: of the threads that trace alone, and loud where their target is not called any more."""

import threading

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import anyjax
from anyjax import private_names
from anyjax.errors import IncompatibleVersion
from anyjax.private_names import Target
from anyjax.torch.compat import patches
from anyjax.torch.engine import session  # noqa: F401  (registers them)

pytestmark = pytest.mark.sample(every=5)

PATCHES = [p for t, p in patches.PATCHES.items() if t.loaded and p.probe is not None]
X = np.array([[1.0, -2.0, 3.0]], np.float32)


class Fivefold(torch.autograd.Function):
    """Its gradient is not that of its forward."""

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        return grad * 5


fivefold = Fivefold.apply


def seen():
    """What a thread sees of what is patched."""
    x = torch.ones(1, 3, requires_grad=True)
    fivefold(x).sum().backward()
    masked = torch.nn.TransformerEncoderLayer(4, 1, 4, batch_first=True, dropout=0.0).eval()
    with pytest.raises(ValueError, match="negative"):
        F.gaussian_nll_loss(x, x, -torch.ones(1, 3))
    with pytest.raises(ValueError, match="scale"):
        torch.distributions.Normal(0.0, -torch.ones(1), validate_args=True)
    with torch.no_grad():
        masked(torch.ones(1, 2, 4))
    return {
        "compiling": bool(torch.compiler.is_compiling()),
        "gradient": x.grad.tolist(),
        "unique": torch.unique(torch.tensor([1, 1, 2])).tolist(),
        "in place": F.selu(torch.ones(2), inplace=True).tolist(),
        "diagonal": torch.zeros(2, 2).fill_diagonal_(1).tolist(),
        "names": [
            type(vars(private_names.found("torch"))[n]).__name__ for n in ("unique", "selu_")
        ],
    }


def test_other_threads_see_none_of_them():
    found = {}

    def function(x):
        thread = threading.Thread(target=lambda: found.update(seen()))
        thread.start()
        thread.join()
        assert torch.compiler.is_compiling()
        return fivefold(x) * 2

    assert np.array_equal(anyjax.from_torch(function)(X), 2 * X)
    want = seen()
    assert want["gradient"] == [[5.0] * 3] and not want["compiling"]
    del want["names"], found["names"]  # the functions themselves are replaced, and ask who calls
    assert found == want


def test_all_is_as_it_was_afterwards():
    before = {t: vars(t.place).get(t.name) for t in patches.PATCHES if t.loaded}
    anyjax.from_torch(torch.nn.ReLU())(X)
    with pytest.raises(ZeroDivisionError):
        anyjax.from_torch(lambda x: x / (1 // 0))(X)
    assert {t: vars(t.place).get(t.name) for t in patches.PATCHES if t.loaded} == before


def test_classes_that_are_made_during_a_trace_are_whole_afterwards():
    made = []

    def function(x):
        class Late(Fivefold):
            pass

        made.append(Late)
        return Late.apply(x)

    assert np.array_equal(anyjax.from_torch(function)(X), X)
    x = torch.ones(2, requires_grad=True)
    made[0].apply(x).sum().backward()
    assert x.grad.tolist() == [5.0, 5.0]


@pytest.mark.parametrize("patch", PATCHES, ids=lambda p: p.target.path)
def test_every_target_is_called(patch):
    assert patches.reaches(patch, patch.probe)


def test_a_target_that_is_not_called_any_more_is_told(monkeypatch):
    target = Target("torch", "unique", "checks that values are alike")
    dead = patches.Patch(target, lambda original: original, lambda: torch.ones(1))
    monkeypatch.setattr(patches, "PATCHES", {target: dead})
    monkeypatch.setattr(patches, "CHECKED", set())
    with pytest.raises(IncompatibleVersion, match=r"torch\.unique is not called any more"):
        anyjax.from_torch(torch.nn.ReLU())(X)


def test_a_probe_that_fails_is_told(monkeypatch):
    target = Target("torch", "unique", "checks that values are alike")
    broken = patches.Patch(target, lambda original: original, lambda: torch.ones(-1))
    monkeypatch.setattr(patches, "PATCHES", {target: broken})
    monkeypatch.setattr(patches, "CHECKED", set())
    with pytest.raises(IncompatibleVersion, match=r"torch\.unique cannot be reached"):
        anyjax.from_torch(torch.nn.ReLU())(X)


def test_a_module_of_transformers_that_is_gone_is_told(monkeypatch):
    pytest.importorskip("transformers")
    target = Target("transformers.no_such_module", "function", "nothing")
    monkeypatch.setattr(patches, "PATCHES", {target: patches.Patch(target, lambda x: x)})
    with pytest.raises(
        IncompatibleVersion, match=r"transformers\.no_such_module\.function is gone"
    ):
        patches.checked()


def test_the_generator_of_torch_is_left_alone():
    patches.CHECKED.clear()
    torch.manual_seed(0)
    want = torch.rand(2).tolist()
    torch.manual_seed(0)
    patches.checked()
    assert torch.rand(2).tolist() == want
