"""What a write cannot do."""

from __future__ import annotations

import pytest
import torch

import anyjax
from anyjax.errors import Unsupported
from anyjax.torch import interop


def test_results_that_do_not_fit():
    with anyjax.torch.on_jax():
        with pytest.raises(Unsupported, match=r"add_.* gives float32\[3\], which .*int64\[3\]"):
            torch.arange(3).add_(1.5)
        with pytest.raises(Unsupported, match="out of the result's shape"):
            torch.add(torch.ones(3), 1, out=torch.ones(2))
        with pytest.raises(Unsupported, match="cannot hold"):
            torch.ones(3).add_(torch.ones(2, 3))


def test_a_tensor_of_torch_is_no_target_but_for_copies():
    x, plain = interop.to_jax(torch.ones(3)), torch.zeros(3)
    with pytest.raises(Unsupported, match="a tensor of torch"):
        plain.add_(x)
    with pytest.raises(Unsupported, match="a tensor of torch"):
        torch.add(x, 1, out=torch.tensor(0.0))
    with pytest.raises(Unsupported, match="a tensor of torch"):
        torch.tensor(0.0).add_(x.sum())
    plain.copy_(x)
    assert plain.tolist() == [1, 1, 1]
    x.copy_(torch.full((3,), 5.0))
    assert x.tolist() == [5, 5, 5]


def test_size_of_memory_that_others_share_stays():
    x = interop.to_jax(torch.ones(3))
    view = x[1:]
    for tensor in (x, view):
        with pytest.raises(Unsupported, match="resize_"):
            tensor.resize_(4)
    alone = interop.to_jax(torch.ones(3))
    assert alone.resize_(2, 2).tolist()[0] == [1, 1]
    assert alone.resize_(1).tolist() == [1]
