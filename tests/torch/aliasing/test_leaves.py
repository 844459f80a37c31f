"""Leaves that are written under no_grad keep their ``.grad``, however they are written."""

import numpy as np
import pytest
import torch

import anyjax
from tests.tolerance import assert_close

X = np.arange(12, dtype=np.float32).reshape(3, 4) / 8

WRITES = {
    "whole": lambda w: w.mul_(2),
    "fill": lambda w: w.fill_(2),
    "copy": lambda w: w.copy_(torch.ones(3, 4)),
    "out": lambda w: torch.mul(w, 2, out=w),
    "view": lambda w: w.view(-1).mul_(2),
    "transposed": lambda w: w.t().mul_(2),
    "row": lambda w: w[0].mul_(2),
    "row_of_transposed": lambda w: w.t()[0].mul_(2),
    "slice": lambda w: w[1:].mul_(2),
    "row_copied": lambda w: w[0].copy_(torch.ones(4)),
    "one_chunk": lambda w: [p.mul_(2) for p in w.chunk(1)],
    "chunks": lambda w: [p.mul_(2) for p in w.chunk(2)],
    "split": lambda w: [p.mul_(2) for p in w.split([1, 2])],
    "unbind": lambda w: w.unbind()[0].add_(1),
    "diagonal": lambda w: w.diagonal().fill_(2),
    "flat": lambda w: w.flatten()[2:4].add_(1),
    "element": lambda w: w.__setitem__((0, 0), 3.0),
    "rows": lambda w: w.__setitem__(torch.tensor([0, 2]), 3.0),
    "data": lambda w: w.data[0].mul_(2),
    "detached": lambda w: w.detach()[0].mul_(2),
    "twice": lambda w: (w[0].mul_(2), w.add_(1), w[1].zero_()),
}
LEAVES = {
    "constant": lambda x: torch.ones(3, 4, requires_grad=True),
    "computed": lambda x: (x * 1).detach().requires_grad_(),
    "parameter": lambda x: torch.nn.Parameter(x.detach().clone()),
}


@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize("write", WRITES)
def test_a_written_leaf_has_its_gradient(write, leaf):
    def function(x):
        w = LEAVES[leaf](x)
        before = (w * x).sum()
        early = w[1]
        with torch.no_grad():
            WRITES[write](w)
        after = (w * x).sum() ** 2 + (w[0] * w[1]).sum() + early.sum()
        (before + after).backward()
        return w.grad, w.detach()

    want = function(torch.tensor(X))
    assert_close(anyjax.from_torch(function).apply({}, X), want)
