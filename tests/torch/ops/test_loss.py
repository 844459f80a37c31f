"""ctc_loss: both layouts of targets, lengths of every kind, impossible alignments."""

import jax
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import tojax
from tests.expectations import further
from tests.tolerance import assert_close

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
    want, model = every(x), tojax.from_torch(every)
    assert_close(jax.jit(lambda x: model.apply({}, x))(SCORES), want, reduction=64)
    start = 0 if forgiving else 2  # without what is impossible
    total = lambda losses: sum((loss**2).sum() for loss in losses[start:])
    total(want).backward()
    got = jax.jit(jax.grad(lambda x: total(model.apply({}, x))))(SCORES)
    assert_close(got, x.grad, reduction=1024)
