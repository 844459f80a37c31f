"""``tensor.data =`` of torch's own tensors and those on JAX."""

import pytest
import torch
from torch import nn

from anyjax.errors import Unsupported
from anyjax.torch import interop


def test_memory_is_shared_on_one_side_alone():
    on_jax = interop.to_jax(torch.ones(2))
    for tensor in (nn.Parameter(torch.ones(2)), torch.ones(2)):
        with pytest.raises(Unsupported, match=r"\.data is set to a tensor on JAX"):
            tensor.data = on_jax
        tensor.data = torch.zeros(3)
        assert tensor.tolist() == [0, 0, 0]
    on_jax.data = interop.to_jax(torch.zeros(3))
    assert on_jax.tolist() == [0, 0, 0]


def test_other_kinds_are_refused_by_torch():
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        torch.ones(2).data = torch.ones(2).to_sparse()
