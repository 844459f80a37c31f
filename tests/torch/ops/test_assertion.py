import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import ForwardFailed


def positive(x):
    torch._assert_async((x > 0).all(), "not positive")
    return x + 1


def test_an_assertion():
    model, bad = anyjax.from_torch(positive), np.array([-1.0], np.float32)
    assert model.apply({}, -bad) == 2
    with pytest.raises(ForwardFailed, match="not positive"):
        model.apply({}, bad)
    assert np.isnan(jax.jit(model.apply)({}, bad))


def checked(x):
    torch._check_tensor_all(x > 0, lambda: f"{x.sum()} is not positive")
    return x + 1


def test_a_check_of_all_values():
    model, bad = anyjax.from_torch(checked), np.array([-1.0], np.float32)
    assert model.apply({}, -bad) == 2
    with pytest.raises(RuntimeError, match="is not positive"):
        model.apply({}, bad)
    assert np.isnan(jax.jit(model.apply)({}, bad))


class Cast(torch.nn.Module):
    def forward(self, x):
        return x.to(torch.float16).to(torch.float32) * 2


def test_an_exported_program_with_a_cast():
    program = torch.export.export(Cast(), (torch.ones(4),))
    assert any("_assert_tensor_metadata" in str(n.target) for n in program.graph.nodes)
    assert anyjax.from_torch(program)(np.ones(4, np.float32)).tolist() == [2, 2, 2, 2]
