"""Functions that would read memory."""

from __future__ import annotations

import pytest
import torch

import anyjax
from anyjax.torch import interop


def test_lists_of_tensors():
    with anyjax.torch.on_jax():
        x = torch.arange(4.0)
        made = torch.tensor([x.sum(), 2, x[1]])
        assert made.dtype is torch.float32
        assert made.jax().tolist() == [6, 2, 1]
        assert torch.as_tensor([[x[1]], [5]], dtype=torch.int64).tolist() == [[1], [5]]
        assert torch.as_tensor(x) is x
        parts = torch.tensor_split(x, torch.tensor([1, 3]))
        assert [p.tolist() for p in parts] == [[0], [1, 2], [3]]
        assert [p.tolist() for p in x.tensor_split(torch.tensor([1]))] == [[0], [1, 2, 3]]
        assert [p.tolist() for p in x.tensor_split(2)] == [[0, 1], [2, 3]]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_lengths_of_ctc_loss(reduction):
    log_probs = torch.randn(5, 1, 4).log_softmax(2)
    loss = torch.nn.CTCLoss(reduction=reduction)
    want = loss(log_probs, torch.tensor([[1, 2]]), [5], [2])
    with anyjax.torch.on_jax():
        got = loss(interop.to_jax(log_probs), torch.tensor([[1, 2]]), [5], [2])
    assert torch.allclose(got.torch(), want)


def test_ctc_loss_outside_of_the_context():
    log_probs, targets = torch.randn(5, 1, 4).log_softmax(2), torch.tensor([[1, 2]])
    want = torch.nn.functional.ctc_loss(log_probs, targets, [5], [2])
    got = torch.nn.functional.ctc_loss(*map(interop.to_jax, (log_probs, targets)), [5], [2])
    assert torch.allclose(got.torch(), want)
