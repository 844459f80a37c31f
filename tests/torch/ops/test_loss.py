"""ctc_loss: both layouts of targets, lengths of every kind, impossible alignments."""

import jax
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import anyjax
from tests.sampling import further
from tests.tolerance import assert_close
from tests.torch.beside_torch import assert_same_gradients, assert_same_values, gradients

pytestmark = pytest.mark.sample(every=8)

SCORES = np.random.default_rng(0).standard_normal((8, 4, 5)).astype(np.float32)
LENGTHS = [4, 1, 0, 5]
TARGETS = np.array([[1, 2, 2, 3, 0], [4, 0, 0, 0, 0], [0] * 5, [1, 1, 1, 1, 1]])
FLAT = np.concatenate([row[:n] for row, n in zip(TARGETS, LENGTHS, strict=True)])
FRAMES = [8, 3, 5, 8]  # the last target needs nine


@pytest.mark.parametrize("reduction", ["mean", *further("none", "sum")])
@pytest.mark.parametrize("forgiving", [False, True])
def test_ctc(reduction, forgiving):
    """The gradient of an impossible alignment is NaN unless it is forgiven."""

    def every(x):
        layouts = [torch.tensor(TARGETS), torch.tensor(FLAT)]
        tensors = torch.tensor(FRAMES), torch.tensor(LENGTHS)
        how = {"reduction": reduction, "zero_infinity": forgiving}
        x = x.log_softmax(-1)
        losses = [F.ctc_loss(x, t, *tensors, **how) for t in layouts]
        losses.append(F.ctc_loss(x[:, :3], layouts[0][:3], *(t[:3] for t in tensors), **how))
        losses.append(F.ctc_loss(x[:, 0], layouts[0][0, :4], tensors[0][0], tensors[1][0], **how))
        return losses

    x = torch.tensor(SCORES, requires_grad=True)
    want, model = every(x), anyjax.from_torch(every)
    assert_close(jax.jit(lambda x: model.apply({}, x))(SCORES), want, reduction=64)
    start = 0 if forgiving else 2  # without what is impossible
    total = lambda losses: sum((loss**2).sum() for loss in losses[start:])
    total(want).backward()
    got = jax.jit(jax.grad(lambda x: total(model.apply({}, x))))(SCORES)
    assert_close(got, x.grad, reduction=1024)


P = np.array([0, 1, 0, 1, 0.3, 1e-13, 1 - 1e-7, 0.5], np.float32)
TARGET = np.array([0, 1, 1, 0, 0.2, 1, 0, 0.5], np.float32)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_binary_cross_entropy_of_certain_probabilities(reduction):
    """At 0 and 1 the gradient is finite, as torch's; one by one, since they are so different."""
    for i in range(8):
        p, target, w = P[i : i + 1], torch.tensor(TARGET[i : i + 1]), torch.tensor([i / 4 + 0.5])
        rest = (target, w) if i % 2 else (target,)
        loss = lambda p, rest=rest: F.binary_cross_entropy(p, *rest, reduction=reduction)
        assert_same_values(loss, p, reduction=8)
        assert_same_gradients(loss, p, reduction=8)


def test_binary_cross_entropy_by_its_target():
    """torch's gradient by a target is infinite at 0 and 1, though the loss ends at 100 there."""
    loss = lambda p, t: F.binary_cross_entropy(p, t, reduction="none")
    got, want = (g[1] for g in gradients(loss, P, TARGET))
    ends = (P == 0) | (P == 1)
    assert np.isinf(want[ends]).all()
    assert_close(got[~ends], want[~ends], reduction=16)
    with torch.no_grad():
        ones, zeros = (loss(torch.from_numpy(P), torch.full((8,), float(t))) for t in (1, 0))
    slope = (ones - zeros).numpy() * np.cos(np.arange(8, dtype=np.float32))
    assert_close(got, slope, reduction=16)


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0, 2.0])
def test_losses_that_are_linear_from_somewhere_on(beta):
    x = np.array([0, 0.25, -0.5, 1, -1, 2, -2, 100, 1e20, np.inf, -np.inf], np.float32)
    for function in (
        lambda x: F.smooth_l1_loss(x, torch.zeros(11), reduction="none", beta=beta),
        lambda x: F.huber_loss(x, torch.zeros(11), reduction="none", delta=beta or 0.1),
    ):
        assert_same_values(lambda x, f=function: tuple(f(x).split(4)), x, reduction=4)
        assert_same_gradients(function, x, reduction=4)
