"""Subclasses of tensors that forward makes."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

import anyjax
from anyjax.errors import Unsupported
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=5)

Q = np.random.default_rng(0).standard_normal((1, 2, 5, 8)).astype(np.float32)


class Named(torch.Tensor):
    def twice(self):
        return self * 2


class Counting(torch.Tensor):
    """Doubles what is multiplied with it."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        return out + out if func is torch.Tensor.mul else out


CASES = {
    "methods of its own": lambda x: x.as_subclass(Named).twice().as_subclass(torch.Tensor),
    "stays one": lambda x: (x.as_subclass(Named) + 1).twice(),
    "torch's maker": lambda x: torch.Tensor._make_subclass(Named, x).twice(),
    "functions of its own": lambda x: x.as_subclass(Counting) * 3,
    "of a constant": lambda x: x[..., :3] * torch.ones(3).as_subclass(Counting),
}


@pytest.mark.parametrize("name", CASES)
def test_plain_ones(name):
    want = CASES[name](torch.from_numpy(Q)).as_subclass(torch.Tensor)
    assert_close(anyjax.from_torch(CASES[name])(Q), want.numpy())


@pytest.mark.parametrize("bias", [causal_lower_right, causal_upper_left])
@pytest.mark.parametrize(("rows", "columns"), [(5, 5), (3, 5)])
def test_causal_bias(bias, rows, columns):
    """Its own dispatch is asked, from which torch's attention comes back."""

    def function(x):
        keys = x[:, :, :columns]
        mask = bias(rows, columns)
        return F.scaled_dot_product_attention(x[:, :, :rows], keys, keys, attn_mask=mask)

    assert_close(
        anyjax.from_torch(function)(Q), function(torch.from_numpy(Q)).numpy(), reduction=64
    )


@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors is in prototype:UserWarning")
@pytest.mark.filterwarnings("ignore:It is not recommended to create a MaskedTensor:UserWarning")
def test_what_works_below_the_functions_is_refused():
    """It ended the process."""

    def function(x):
        return torch.masked.masked_tensor(x, x > 0).sum().to_tensor(0)

    with pytest.raises(Unsupported, match="class MaskedTensor inside forward"):
        anyjax.from_torch(function)(Q)
